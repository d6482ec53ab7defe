"""Write operator logs by hand, one line per operator."""

from __future__ import annotations

import math

from replay.oplog import Flags, Leaf, Op, OpLog, Span, Visit

GOOD = Flags(False, False, False, 1.0, 4)
ZERO = Flags(False, False, False, 0.0, 4)
NAN = Flags(True, False, False, math.nan, 4)
PLUS = Flags(False, True, False, math.inf, 4)
MINUS = Flags(False, False, True, math.inf, 4)


def size(value):
    return Flags(False, False, False, value, 4)


class Written:
    """A log that is written operator by operator; values are known by short names."""

    def __init__(self):
        self.log = OpLog()
        self.storages = {}

    def span(self, name, flags=GOOD, *, maker=-1, start=0, stop=16):
        number = self.storages.setdefault(name, len(self.storages))
        self.log.flags.append(flags)
        return Span(number, start, stop, len(self.log.flags) - 1, maker)

    def visit(self, module, kind="Linear"):
        self.log.visits.append(Visit(module=module, module_type=kind, call=0, root_call=0, step=0))
        return len(self.log.visits) - 1

    def leaf(self, name, role="parameter", module="", path=None):
        number = self.storages.setdefault(name, len(self.storages))
        self.log.leaves[number] = Leaf(role, (path or f":{name}",), module)

    def op(self, name, reads=(), writes=(), *, module="m", stage="forward", **fields):
        """Add an operator; reads and writes are (value, flags)."""
        index = len(self.log.ops)
        op = Op(index=index, name=f"aten.{name}.default", stage=stage, **fields)
        op.visit = self.visit(module) if module is not None else -1
        op.reads = [each if isinstance(each, Span) else self.span(*each) for each in reads]
        op.writes = [
            each if isinstance(each, Span) else self.span(*each, maker=index) for each in writes
        ]
        self.log.ops.append(op)
        return op
