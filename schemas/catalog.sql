-- The catalog: what `flightrec query` and `Store.connect()` show of a store.
--
-- Run by itself this file makes the views of an empty store. Three schemas:
--   typed   one typed table per kind of row; the columns that a store writes as Parquet
--   rows    the rows of one store; here a stand-in, replaced when a store is opened
--   main    the views that a query sees
--
-- Rows lie in <store>/catalog/<table>/date=<day>/run=<run>/<incident>.parquet until they are
-- folded into <store>/catalog/<table>/folded-*.parquet. All times are UTC. A column is only
-- ever added, at the end of its table; readers fill it with NULL where a file is older.
--
-- Version 1: the first.

CREATE SCHEMA typed;
CREATE SCHEMA rows;

-- incidents: One row per captured failure.
CREATE TABLE typed.incidents (
    id VARCHAR,                 -- the incident; ids sort by time
    created TIMESTAMP,          -- when it was captured
    kind VARCHAR,               -- nan, inf, zeroed, loss_spike, exploding_grad, exception, manual, ...
    step BIGINT,                -- step in which it was noticed
    module VARCHAR,             -- module of the site; '' is the root, NULL outside every module
    site VARCHAR,               -- where it was noticed, as text: module:kind:leaf#call
    site_kind VARCHAR,          -- input, output, grad_output, grad_input, param, param_grad, buffer, loss, value
    leaf VARCHAR,               -- pytree path, or a parameter's or buffer's own name
    call BIGINT,                -- which call of that module in the step, from 0
    reason VARCHAR,             -- one sentence for a person
    detector VARCHAR,           -- detector that noticed it; NULL for exceptions and manual captures
    fingerprint VARCHAR,        -- equal for incidents of one kind, site and code version
    loss DOUBLE,                -- loss of that step
    grad_norm DOUBLE,           -- gradient norm of that step, before clipping
    lr DOUBLE,                  -- learning rate of that step
    exception_type VARCHAR,     -- class of the exception that left the step
    exception_message VARCHAR,  -- its text
    run VARCHAR,                -- the run it belongs to
    run_name VARCHAR,           -- name given to the run
    rank BIGINT,                -- rank of the process
    world_size BIGINT,          -- number of ranks
    commit VARCHAR,             -- commit of the user's repository
    dirty BOOLEAN,              -- had the repository uncommitted changes?
    machine VARCHAR,            -- name of the computer
    platform VARCHAR,           -- operating system and processor
    device VARCHAR,             -- accelerator, or cpu
    python VARCHAR,             -- version of Python
    torch VARCHAR,              -- version of torch
    flightrec VARCHAR,          -- version of this recorder
    format BIGINT,              -- version of the incident file
    bytes BIGINT,               -- size of the incident file
    path VARCHAR,               -- the incident file, relative to the store
    date DATE,                  -- day of capture
    run_started TIMESTAMP,      -- when the run began (column of the view runs)
    run_pid BIGINT,             -- process id of the run (column of the view runs)
    run_argv VARCHAR            -- command line of the run (column of the view runs)
);

-- steps: One row per step of an incident's ring, the failing one last.
CREATE TABLE typed.steps (
    incident_id VARCHAR,        -- incidents.id
    step BIGINT,                -- number of the step
    loss DOUBLE,                -- last loss given to the recorder
    grad_norm DOUBLE,           -- L2 norm over all gradients, before clipping
    lr DOUBLE,                  -- learning rate of the first group
    updated BOOLEAN,            -- did an optimizer step happen?
    seconds DOUBLE,             -- wall-clock time of the step
    data_seconds DOUBLE,        -- waiting for the batch
    forward_seconds DOUBLE,     -- in the forward pass
    backward_seconds DOUBLE,    -- in the backward pass
    optimizer_seconds DOUBLE,   -- in the optimizer
    recorder_seconds DOUBLE,    -- in the recorder itself
    scalars MAP(VARCHAR, DOUBLE), -- values given to recorder.log
    run VARCHAR,                -- the run
    date DATE                   -- day of capture
);

-- stats: One row per incident, step and site that was measured; what was not is NULL, never NaN.
CREATE TABLE typed.stats (
    incident_id VARCHAR,        -- incidents.id
    step BIGINT,                -- number of the step
    site VARCHAR,               -- the place, as text: module:kind:leaf#call
    module VARCHAR,             -- dotted name; '' is the root
    site_kind VARCHAR,          -- input, output, grad_output, grad_input, param, param_grad, buffer, loss, value
    leaf VARCHAR,               -- pytree path, or a parameter's or buffer's own name
    call BIGINT,                -- which call of that module in the step, from 0
    nan_count BIGINT,           -- elements that are NaN
    inf_count BIGINT,           -- elements that are infinite
    zero_fraction DOUBLE,       -- share of elements that are exactly 0
    min DOUBLE,                 -- smallest element
    max DOUBLE,                 -- largest element
    absmax DOUBLE,              -- largest magnitude
    mean DOUBLE,                -- mean
    std DOUBLE,                 -- standard deviation
    l2 DOUBLE,                  -- L2 norm
    numel BIGINT,               -- number of elements
    ordinal BIGINT,             -- position in execution order
    run VARCHAR,                -- the run
    date DATE                   -- day of capture
);

-- findings: One row per statement of a detector, in the order in which they were made.
CREATE TABLE typed.findings (
    incident_id VARCHAR,        -- incidents.id
    ordinal BIGINT,             -- position among the findings of the incident, from 0
    detector VARCHAR,           -- who says so
    kind VARCHAR,               -- what it would make the incident
    level VARCHAR,              -- note or capture
    step BIGINT,                -- number of the step
    site VARCHAR,               -- the place, as text; NULL where there is none
    module VARCHAR,             -- dotted name; '' is the root
    site_kind VARCHAR,          -- kind of site
    leaf VARCHAR,               -- pytree path, or a parameter's or buffer's own name
    call BIGINT,                -- which call of that module in the step, from 0
    value DOUBLE,               -- what was measured
    threshold DOUBLE,           -- the limit it was held against
    text VARCHAR,               -- one sentence for a person
    run VARCHAR,                -- the run
    date DATE                   -- day of capture
);

-- tensors: One row per tensor kept in an incident.
CREATE TABLE typed.tensors (
    incident_id VARCHAR,        -- incidents.id
    ordinal BIGINT,             -- index of the tensor in the incident
    name VARCHAR,               -- where it was found: encoder.weight, args[0]['x']
    role VARCHAR,               -- param, buffer, input, output, grad, grad_output, rng, value
    step BIGINT,                -- step it is part of; NULL for weights
    shape BIGINT[],             -- size in each dimension
    dtype VARCHAR,              -- float32, bfloat16, ...
    bytes BIGINT,               -- elements times bytes per element
    hash VARCHAR,               -- content hash of the bytes it lies on; NULL without bytes
    device VARCHAR,             -- where it was
    requires_grad BOOLEAN,      -- did it take part in autograd?
    reliable BOOLEAN,           -- false where it had changed before it could be written
    run VARCHAR,                -- the run
    date DATE                   -- day of capture
);

-- environment: One row per fact about the machine and the software of an incident.
CREATE TABLE typed.environment (
    incident_id VARCHAR,        -- incidents.id
    key VARCHAR,                -- dotted name: torch, packages.numpy, cpu.capability
    value VARCHAR,              -- its value as text
    run VARCHAR,                -- the run
    date DATE                   -- day of capture
);

-- verdicts: One row per replay or bisection of an incident.
CREATE TABLE typed.verdicts (
    incident_id VARCHAR,        -- incidents.id
    judged TIMESTAMP,           -- when
    command VARCHAR,            -- replay or bisect
    status VARCHAR,             -- reproduced, not_reproduced, diverged, unsupported
    fidelity VARCHAR,           -- bit_exact, close, diverged
    gradients VARCHAR,          -- bit_exact, close, diverged, unavailable, none
    max_ulp BIGINT,             -- largest distance in units in the last place
    kind VARCHAR,               -- what was found
    phase VARCHAR,              -- data, parameter, forward, loss, backward, optimizer
    step BIGINT,                -- step in which the first bad value was made
    noticed_step BIGINT,        -- step in which it showed
    rank BIGINT,                -- rank of the process
    module VARCHAR,             -- the culprit; '' is the root, NULL outside every module
    module_type VARCHAR,        -- its class
    call BIGINT,                -- which call of that module in the step, from 0
    root_call BIGINT,           -- which recorded call it happened in, from 0
    op VARCHAR,                 -- operator, as aten.name.overload
    backward_of VARCHAR,        -- forward operator whose backward it is
    file VARCHAR,               -- source file
    line BIGINT,                -- line in it
    code VARCHAR,               -- text of that line
    sample BIGINT,              -- the only row of the batch whose exchange cures the step
    index BIGINT[],             -- first bad element of the culprit's output
    confirmed BOOLEAN,          -- was it shown by experiment?
    first_divergence VARCHAR,   -- first site that differs from the recording
    forward_passes BIGINT,      -- what the answer cost
    seconds DOUBLE,             -- how long it took
    device VARCHAR,             -- where it was replayed
    evidence VARCHAR,           -- JSON list of {kind, text, value}
    run VARCHAR,                -- the run
    date DATE                   -- day on which the incident was captured
);

CREATE VIEW rows.incidents AS FROM typed.incidents;
CREATE VIEW rows.steps AS FROM typed.steps;
CREATE VIEW rows.stats AS FROM typed.stats;
CREATE VIEW rows.findings AS FROM typed.findings;
CREATE VIEW rows.tensors AS FROM typed.tensors;
CREATE VIEW rows.environment AS FROM typed.environment;
CREATE VIEW rows.verdicts AS FROM typed.verdicts;

CREATE VIEW incidents AS SELECT * EXCLUDE (run_started, run_pid, run_argv) FROM rows.incidents;
CREATE VIEW steps AS FROM rows.steps;
CREATE VIEW stats AS FROM rows.stats;
CREATE VIEW findings AS FROM rows.findings;
CREATE VIEW tensors AS FROM rows.tensors;
CREATE VIEW environment AS FROM rows.environment;
CREATE VIEW verdicts AS FROM rows.verdicts;

-- runs: One row per run that left an incident.
CREATE VIEW runs AS SELECT
    run,                                   -- the run
    any_value(run_name) AS name,           -- name given to it
    any_value(run_started) AS started,     -- when it began
    any_value(machine) AS machine,         -- name of the computer
    any_value(run_pid) AS pid,             -- process id
    any_value(run_argv) AS argv,           -- its command line
    any_value(commit) AS commit,           -- commit of the user's repository
    count(*) AS incidents,                 -- how many incidents it left
    list_sort(list(DISTINCT kind)) AS kinds, -- their kinds
    min(created) AS first_incident,        -- time of the first
    max(created) AS last_incident          -- time of the last
FROM rows.incidents GROUP BY run;
