"""An incident gets no code that nobody trusted, and none of it runs while that is found out."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import schemas
from flightrec.errors import CodeMissingError, CorruptIncidentError, UntrustedNameError, UsageError
from flightrec.factory import load_factory
from flightrec.needs import Need, Role, listed_functions, needs_of, never
from flightrec.structure import describe, needed_names, rebuild
from flightrec.tree import Decoder, TensorLoader, TensorTable
from flightrec.trust import Trust


class WithDel:
    def __del__(self):
        Path(self.__dict__.get("victim", "/nonexistent")).rmdir()


class DelBelow(WithDel):
    pass


class ModuleWithDel(nn.Module, DelBelow):
    pass


class Lying(type):
    """Says that its classes are modules, and that they are somebody else."""

    def __instancecheck__(cls, instance):
        return True

    def __subclasscheck__(cls, other):
        return True

    def mro(cls):
        return [cls, object]

    @property
    def __module__(cls):
        return "torch.nn.modules.linear"


class Liar(metaclass=Lying):
    pass


class Watchful(nn.Module):
    """Every way in which filling it could run code fails the test."""

    def __new__(cls, *args, **kwargs):
        raise AssertionError("__new__ ran")

    def __setstate__(self, state):
        raise AssertionError("__setstate__ ran")

    def __setattr__(self, name, value):
        raise AssertionError("__setattr__ ran")

    @property
    def secret(self):
        raise AssertionError("a property ran")

    @secret.setter
    def secret(self, value):
        raise AssertionError("a setter ran")


def plain_function(x):
    return x


def other_function(x):
    return x


other_function.__qualname__ = "plain_function"
alias_of_system = os.system


def model(*entries, roots=None, files=()):
    """Return a model node around module entries."""
    return {
        "$": "model",
        "roots": roots or [["", {"$": "submodule", "i": 0}]],
        "modules": [{"$": "module", "training": True, **entry} for entry in entries],
        "files": list(files),
    }


def attack(*, state=(), trust=None, **entry):
    """Rebuild a Linear that holds what an attacker likes."""
    entry = {"class": "torch.nn.modules.linear:Linear", "state": list(state), **entry}
    return rebuild(model(entry), no_tensors, trust or Trust())[""]


def no_tensors(index):
    raise CorruptIncidentError("no tensors")


def function(name):
    return {"$": "function", "name": name}


def partial_of(node, *args):
    return {
        "$": "partial",
        "function": node,
        "args": {"$": "tuple", "v": list(args)},
        "kwargs": {"$": "dict", "v": []},
    }


# What the four attacks of the design were, and what is like them.

HERE = __name__


@pytest.mark.parametrize("name", ["WithDel", "DelBelow"])
@pytest.mark.parametrize("own", [True, False])
def test_no_folder_is_deleted_by_a_del(tmp_path, name, own):
    victim = tmp_path / "victim"
    victim.mkdir()
    node = {"$": "object", "class": f"{HERE}:{name}", "state": [["victim", str(victim)]]}
    trust = Trust(own=own, names=[] if own else [HERE])
    with pytest.raises(UntrustedNameError, match="__del__"):
        attack(state=[["bomb", node]], trust=trust)
    with pytest.raises(UntrustedNameError, match="__del__"):
        Decoder(no_tensors, trust).decode(node)
    assert victim.exists()


def test_no_module_class_with_del():
    with pytest.raises(UntrustedNameError, match="__del__"):
        rebuild(model({"class": f"{HERE}:ModuleWithDel"}), no_tensors, Trust(own=True))


@pytest.mark.parametrize(
    "name",
    [
        "torch:from_file",
        "torch:_VariableFunctionsClass.from_file",
        "torch._C._VariableFunctions:from_file",
        "torch:_C._VariableFunctions.from_file",
        "torch:load",
        "torch.serialization:load",
        "torch.serialization:save",
        "torch.hub:load",
        "torch.utils.cpp_extension:load",
        "torch.utils.cpp_extension:load_inline",
        "torch.jit._serialization:load",
        "torch._ops:_Ops.load_library",
        "torch:ops.load_library",
        "torch._C:_jit_import",
        "torch.distributed.run:main",
        "torch.os:system",
        "torch:os.system",
        "torch.utils.collect_env:subprocess.Popen",
        "torch.storage:UntypedStorage.from_file",
        "os:system",
        "posix:system",
        "subprocess:run",
        "subprocess:Popen",
        "builtins:eval",
        "builtins:exec",
        "builtins:__import__",
        "builtins:getattr",
        "builtins:open",
        "io:open",
        "operator:call",
        "_operator:call",
        "operator:methodcaller",
        "operator:attrgetter",
        "operator:itemgetter",
        "functools:reduce",
        "runpy:run_path",
        "importlib:import_module",
        "pickle:loads",
        "shutil:rmtree",
        "numpy:load",
        "numpy:save",
        "ctypes:CDLL",
        "code:interact",
        "webbrowser:open",
        "numpy.f2py:compile",
    ],
)
@pytest.mark.parametrize("own", [True, False])
def test_no_dangerous_function_by_any_name(name, own, tmp_path):
    trust = Trust(own=own, names=[] if own else ["torch", "numpy", "os"])
    for node in (
        function(name),
        partial_of(function(name), str(tmp_path / "made"), True, 10),
        {"$": "class", "name": name},
        {"$": "object", "class": name, "state": []},
        {"$": "method", "function": name, "self": "touch /tmp/x"},
        {"$": "enum", "class": name, "name": "x", "value": 1},
        {"$": "partial", "class": name, **{k: v for k, v in partial_of(None).items() if k != "$"}},
    ):
        refusals = (UntrustedNameError, CodeMissingError)
        with pytest.raises(refusals):
            attack(state=[["act", node]], trust=trust)
        with pytest.raises(refusals):
            attack(hooks=[["_forward_hooks", [[0, node]]]], trust=trust)
        with pytest.raises(refusals):
            Decoder(no_tensors, trust).decode({"$": "list", "v": [{"$": "list", "v": [node]}]})
    assert list(tmp_path.iterdir()) == []


def test_a_name_counts_only_where_it_lives():
    trust = Trust(own=True)
    with pytest.raises(UntrustedNameError, match="not the function"):
        trust.resolve_function(HERE, "alias_of_system")
    with pytest.raises(UntrustedNameError, match="not the function"):
        trust.resolve_function(HERE, "other_function")
    with pytest.raises(UntrustedNameError, match="not the class"):
        trust.resolve_class(HERE, "Path")
    with pytest.raises((UntrustedNameError, CodeMissingError)):
        trust.resolve_function(HERE, "os.system")
    with pytest.raises(UntrustedNameError):
        trust.resolve_class(HERE, "plain_function")
    with pytest.raises(UntrustedNameError):
        trust.resolve_function(HERE, "WithDel")
    assert trust.resolve_function(HERE, "plain_function") is plain_function


@pytest.mark.parametrize("name", ["torch.nn.modules.linear:Identity.__init__", "x:y", "torch:a b"])
def test_odd_names_are_refused(name):
    with pytest.raises(UntrustedNameError):
        attack(state=[["act", function(name)]])


@pytest.mark.parametrize("name", ["", ":", "torch", "torch:", ":x", "a b:c", "os:system\x1b[31m"])
def test_what_is_no_name_is_refused_and_shown_safely(name):
    with pytest.raises(UntrustedNameError) as caught:
        attack(state=[["act", function(name)]], trust=Trust(own=True))
    assert "\x1b" not in str(caught.value)


def test_only_modules_are_made_into_modules():
    for name in (
        "torch.nn.parameter:Parameter",
        "collections:OrderedDict",
        "torch.optim.sgd:SGD",
        f"{HERE}:WithDel",
        f"{HERE}:Liar",
    ):
        with pytest.raises(UntrustedNameError):
            rebuild(model({"class": name}), no_tensors, Trust(own=True))


def test_a_metaclass_cannot_lie():
    trust = Trust(own=True)
    with pytest.raises(UntrustedNameError):
        trust.resolve_module(HERE, "Liar")
    assert trust.resolve_class(HERE, "Liar") is Liar


def test_filling_a_module_runs_nothing_of_it():
    node = model(
        {
            "class": f"{HERE}:Watchful",
            "state": [["secret", 1], ["__class__", 2], ["__dict__", 3], ["forward", None]],
        }
    )
    made = rebuild(node, no_tensors, Trust(own=True))[""]
    assert type(made) is Watchful
    assert vars(made)["secret"] == 1


def test_code_in_state_is_only_data():
    made = attack(state=[["__reduce__", "x"], ["__setstate__", "y"], ["_parameters", None]])
    assert type(made) is nn.Linear


def test_forwards_of_modules_only():
    trust = Trust()
    found = trust.resolve_function("torch.nn.modules.linear", "Linear.forward")
    assert found is nn.Linear.forward
    for name in ("torch.autograd.function:Function.forward", "torch.utils.data:DataLoader.forward"):
        with pytest.raises((UntrustedNameError, CodeMissingError)):
            trust.resolve_function(*name.split(":"))
    with pytest.raises(UntrustedNameError):
        trust.resolve_function("torch.nn.modules.module", "Module.load_state_dict")


def test_library_modules_that_only_run_programs_are_not_imported():
    assert "torch.utils.bottleneck.__main__" not in sys.modules
    for name in (
        "torch.utils.bottleneck.__main__:Net",
        "torch.utils.model_dump.__main__:Net",
        "torch.testing._internal.common_utils:TestCase",
        "torch.distributed.launch:Net",
        "torch.backends.xeon.run_cpu:Net",
    ):
        with pytest.raises(UntrustedNameError):
            rebuild(model({"class": name}), no_tensors, Trust())
    assert "torch.utils.bottleneck.__main__" not in sys.modules
    assert "torch.backends.xeon.run_cpu" not in sys.modules


# Scripts and modules of the user.


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder of its own, current, with a way to write files; modules are forgotten after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLIGHTREC_TRUST", raising=False)
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - before:
        place = str(getattr(sys.modules[name], "__file__", None))
        if place.startswith((str(tmp_path), "<", "None", "train.py")):
            del sys.modules[name]
    sys.path[:] = path
    sys.path_importer_cache.pop(str(tmp_path), None)


NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
    def forward(self, x):
        return self.fc(x) * {factor}
"""

SCRIPT = (
    NET.format(factor=1)
    + """
from pathlib import Path
Path("script_was_run").touch()
for _ in range(3):
    Path("loop_was_run").touch()
"""
)


def write(folder, name, text):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def describe_here(name, folder):
    """Describe a `Net` of a module as its own process would, then forget the module."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    module = importlib.import_module(name)
    torch.manual_seed(0)
    net = module.Net()
    table = TensorTable()
    description = describe({"": net}, table)
    storages, refs = table.export()
    sys.path.remove(str(folder))
    for loaded in [
        each for each in sys.modules if each.partition(".")[0] == name.partition(".")[0]
    ]:
        del sys.modules[loaded]
    loader = TensorLoader(refs, lambda n: storages[n].data)
    manifest = {
        "model": {
            "roots": json.loads(json.dumps(description.node)),
            "sources": json.loads(json.dumps(description.sources)),
        }
    }
    return manifest, loader, net


def rebuild_of(manifest, loader, **options):
    trust = Trust.for_manifest(manifest, **options)
    return rebuild(manifest["model"]["roots"], loader, trust)[""], trust


def test_an_unguarded_script_does_not_run(project):
    write(project, "train.py", SCRIPT)
    node = model({"class": "train:Net"})
    for trust in (Trust(), Trust(names=["."])):
        with pytest.raises(UntrustedNameError, match="train:Net"):
            rebuild(node, no_tensors, trust)
    assert "train" not in sys.modules
    assert not list(project.glob("*_was_run"))


def test_names_are_all_listed_and_how_to_trust_them():
    node = model(
        {"class": "mine.net:Net", "state": [["act", function("mine.acts:swish")]]},
        {"class": "yours:Block"},
        {"class": "torch.nn.modules.linear:Linear"},
    )
    names = {"mine.net:Net", "mine.acts:swish", "yours:Block"}
    assert needed_names(node) == names | {"torch.nn.modules.linear:Linear"}
    with pytest.raises(UntrustedNameError) as caught:
        rebuild(node, no_tensors, Trust())
    text = str(caught.value)
    assert all(name in text for name in names)
    assert "--trust mine --trust yours" in text
    assert "Linear" not in text


def test_nothing_is_imported_before_everything_is_checked(project):
    write(project, "good.py", "from pathlib import Path\nPath('good_was_run').touch()\n" + NET)
    node = model({"class": "good:Net"}, {"class": "bad:Net"})
    with pytest.raises(UntrustedNameError, match="bad:Net"):
        rebuild(node, no_tensors, Trust(names=["good"]))
    node = model({"class": "good:Net", "state": [["f", function("os:system")]]})
    with pytest.raises(UntrustedNameError, match="os:system"):
        rebuild(node, no_tensors, Trust(own=True))
    assert not list(project.glob("*_was_run"))
    assert "good" not in sys.modules


@pytest.mark.parametrize(
    "options",
    [{"own": True}, {"names": ["pkg"]}, {"names": ["pkg.net"]}, {"names": ["."]}],
    ids=str,
)
def test_trusted_code_is_imported(project, options):
    write(project, "pkg/__init__.py", "")
    write(project, "pkg/net.py", NET.format(factor=2))
    manifest, loader, net = describe_here("pkg.net", project)
    with pytest.raises(UntrustedNameError, match=r"pkg\.net:Net"):
        rebuild_of(manifest, loader)
    with pytest.raises(UntrustedNameError):
        rebuild_of(manifest, loader, names=["pk", "pkg.ne", "pkg.nets"])
    twin, trust = rebuild_of(manifest, loader, **options)
    x = torch.ones(1, 2)
    assert torch.equal(twin(x), net(x))
    assert trust.changed == []


def test_a_dot_is_the_current_folder_and_not_what_is_installed(project):
    outside = project / "outside"
    inside = project / "inside"
    write(outside, "away.py", NET.format(factor=1))
    write(inside, "venv/lib/site-packages/installed.py", NET.format(factor=1))
    write(inside, "near.py", NET.format(factor=1))
    sys.path[:0] = [str(outside), str(inside / "venv/lib/site-packages"), str(inside)]
    importlib.invalidate_caches()
    for name, allowed in (("away", False), ("installed", False), ("near", True)):
        trust = Trust(names=["."], root=inside)
        if allowed:
            assert trust.resolve_module(name, "Net").__name__ == "Net"
        else:
            with pytest.raises(UntrustedNameError):
                trust.resolve_module(name, "Net")
            assert name not in sys.modules


def test_a_dot_does_not_run_scripts_in_packages_either(project):
    write(project, "pkg/__init__.py", "open('init_was_run', 'w').close()\n")
    write(project, "pkg/net.py", NET.format(factor=1))
    with pytest.raises(UntrustedNameError):
        Trust(names=["."]).resolve_module("pkg.net", "Net")
    assert not list(project.glob("*_was_run"))


def test_a_library_is_not_a_file_in_the_current_folder(project):
    write(project, "timm.py", "open('timm_was_run', 'w').close()\n" + NET)
    sys.path.insert(0, "")
    importlib.invalidate_caches()
    if importlib.util.find_spec("timm").origin != str(project / "timm.py"):
        pytest.skip("the real timm is installed")
    with pytest.raises(UntrustedNameError, match="timm:Net"):
        rebuild(model({"class": "timm:Net"}), no_tensors, Trust())
    assert not list(project.glob("*_was_run"))


def test_a_library_that_is_not_here_is_named():
    with pytest.raises(CodeMissingError, match="torchaudio"):
        rebuild(model({"class": "torchaudio.models:Conformer"}), no_tensors, Trust())


def test_settings_name_packages(project, monkeypatch):
    monkeypatch.setenv("FLIGHTREC_TRUST", "one, two.three:.")
    write(project, "pyproject.toml", '[tool.flightrec]\ntrust = ["four"]\n')
    trust = Trust.from_settings(names=["five"])
    assert trust.names == ("five", "one", "two.three", ".", "four")


def test_settings_of_a_folder_above_the_repository_do_not_count(project):
    write(project, "pyproject.toml", '[tool.flightrec]\ntrust = ["four"]\n')
    inner = project / "inner"
    (inner / "deep").mkdir(parents=True)
    assert Trust.from_settings(root=inner / "deep").names == ()
    (project / "own/.git").mkdir(parents=True)
    write(project, "own/pyproject.toml", '[tool.flightrec]\ntrust = ["five"]\n')
    (project / "own/deep").mkdir()
    assert Trust.from_settings(root=project / "own/deep").names == ("five",)


@pytest.mark.parametrize("text", ["[tool.flightrec]\ntrust = 3\n", "[tool.flightrec\n"], ids="ab")
def test_settings_that_cannot_be_meant(project, text):
    write(project, "pyproject.toml", text)
    with pytest.raises(UsageError, match="pyproject"):
        Trust.from_settings()


@pytest.mark.parametrize(
    "options", [{"names": ["a b"]}, {"names": ["../x"]}, {"code": "other"}], ids=str
)
def test_options_that_cannot_be_meant(options):
    with pytest.raises(UsageError):
        Trust(**options)


def test_a_changed_class_is_reported(project):
    file = write(project, "mine.py", NET.format(factor=1))
    manifest, loader, _ = describe_here("mine", project)
    file.write_text("# a comment more\n" + NET.format(factor=1))
    assert rebuild_of(manifest, loader, own=True)[1].changed == []
    del sys.modules["mine"]
    file.write_text(NET.format(factor=3))
    importlib.invalidate_caches()
    twin, trust = rebuild_of(manifest, loader, own=True)
    assert trust.changed == ["mine:Net"]
    assert "mine:Net" in needed_names(manifest["model"]["roots"])
    assert torch.equal(twin(torch.ones(1, 2)), twin.fc(torch.ones(1, 2)) * 3)


def test_recorded_code_is_used_when_asked_for(project):
    write(project, "lib/helper.py", "def scale(x):\n    return x * 5\n")
    file = write(project, "mine/net.py", "from lib.helper import scale\n" + NET.format(factor=1))
    file.write_text(file.read_text().replace("self.fc(x) * 1", "scale(self.fc(x))"))
    manifest, loader, net = describe_here("mine.net", project)
    for name in ("lib", "lib.helper"):
        sys.modules.pop(name, None)
    write(project, "lib/helper.py", "raise RuntimeError\n")
    write(project, "mine/net.py", "raise RuntimeError\n")
    x = torch.ones(1, 2)
    with pytest.raises(CodeMissingError, match=r"mine\.net"):
        rebuild_of(manifest, loader, own=True)
    twin, trust = rebuild_of(manifest, loader, own=True, code="recorded")
    assert torch.equal(twin(x), net(x))
    assert trust.changed == []


def test_recorded_code_needs_the_same_trust(project):
    write(project, "mine.py", NET.format(factor=1))
    manifest, loader, net = describe_here("mine", project)
    (project / "mine.py").unlink()
    for names in ((), (".",), ("other",)):
        with pytest.raises(UntrustedNameError):
            rebuild_of(manifest, loader, names=names, code="recorded")
    twin, _ = rebuild_of(manifest, loader, names=["mine"], code="recorded")
    assert torch.equal(twin(torch.ones(1, 2)), net(torch.ones(1, 2)))


def test_recorded_text_never_stands_for_a_library(project):
    evil = "open('evil_was_run', 'w').close()\nclass Linear: pass\n"
    for name in ("torch.nn.modules.linear", "torch.nn.modules", "json", "timm.models.evil"):
        sources = [{"name": name, "file": "x.py", "line": 1, "text": evil}]
        trust = Trust(own=True, code="recorded", sources=sources)
        with contextlib.suppress(UntrustedNameError, CodeMissingError):
            trust.resolve_module(name, "Linear")
    assert not list(project.glob("*_was_run"))


def test_code_that_is_gone_is_named_with_what_to_do(project):
    write(project, "gone.py", NET.format(factor=1))
    manifest, loader, _ = describe_here("gone", project)
    (project / "gone.py").write_text("class Other: pass\n")
    with pytest.raises(CodeMissingError, match=r"gone has no Net.*--code recorded.*--model"):
        rebuild_of(manifest, loader, own=True)
    del sys.modules["gone"]
    (project / "gone.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(CodeMissingError, match=r"gone is not here"):
        rebuild_of(manifest, loader, own=True)


def from_path(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["odd_case", "tests.made.up.odd_case"])
def test_a_module_loaded_from_a_path_is_found_there(project, name):
    folder = project / "elsewhere"
    path = write(folder, "some file.py", NET.format(factor=4).rstrip())  # no last newline
    net = from_path(path, name).Net()
    table = TensorTable()
    description = describe({"": net}, table)
    storages, refs = table.export()
    manifest = {"model": {"roots": description.node, "sources": description.sources}}
    loader = TensorLoader(refs, lambda n: storages[n].data)
    del sys.modules[name]
    work = project / "work"
    work.mkdir()
    with pytest.raises(UntrustedNameError):
        rebuild_of(manifest, loader, names=["."], root=work)
    twin, _ = rebuild_of(manifest, loader, own=True, root=work)
    assert type(twin).__module__ == name
    assert sys.modules[name].Net is type(twin)
    assert torch.equal(twin(torch.ones(1, 2)), net(torch.ones(1, 2)))
    del sys.modules[name]
    twin, _ = rebuild_of(manifest, loader, names=["."], root=folder)
    assert torch.equal(twin(torch.ones(1, 2)), net(torch.ones(1, 2)))
    del sys.modules[name]
    path.write_text(NET.format(factor=5))
    with pytest.raises(CodeMissingError):
        rebuild_of(manifest, loader, own=True, root=work)


def test_a_stranger_cannot_name_a_path_outside(project):
    outside = write(project / "outside", "evil.py", "open('evil_was_run', 'w').close()\n" + NET)
    work = project / "work"
    work.mkdir()
    files = [{"module": "evil", "path": str(outside), "hash": "", "package": ""}]
    for names in (["."], ["evil"]):
        node = model({"class": "evil:Net"}, files=files)
        with pytest.raises((UntrustedNameError, CodeMissingError)):
            rebuild(node, no_tensors, Trust(names=names, root=work))
    assert not list(project.rglob("*_was_run"))


def as_script(path, text):
    """Run a script as `__main__` would, describe its Net, and put `__main__` back."""
    path.write_text(text, encoding="utf-8")
    main = type(sys)("__main__")
    main.__file__ = str(path)
    kept = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(compile(text, str(path), "exec"), vars(main))
        table = TensorTable()
        description = describe({"": main.net}, table)
    finally:
        sys.modules["__main__"] = kept
    storages, refs = table.export()
    manifest = {
        "model": {
            "roots": json.loads(json.dumps(description.node)),
            "sources": json.loads(json.dumps(description.sources)),
        }
    }
    return manifest, TensorLoader(refs, lambda n: storages[n].data), main.net


MAIN = (
    textwrap.dedent(NET.format(factor="SCALE")).replace("class Net", "SCALE = 7\n\nclass Net")
    + """
def hook(module, args, output):
    return output + 1

from pathlib import Path
RUNS = Path("runs")
with RUNS.open("a") as log:
    log.write("x")
net = Net()
net.register_forward_hook(hook)
"""
)


@pytest.mark.parametrize(
    "options", [{"own": True}, {"names": ["."]}, {"names": ["__main__"]}], ids=str
)
def test_a_script_is_loaded_without_running(project, options):
    manifest, loader, net = as_script(project / "train.py", MAIN)
    assert (project / "runs").read_text() == "x"
    with pytest.raises(UntrustedNameError, match="__main__:Net"):
        rebuild_of(manifest, loader)
    twin, trust = rebuild_of(manifest, loader, **options)
    assert (project / "runs").read_text() == "x"
    assert torch.equal(twin(torch.ones(1, 2)), net(torch.ones(1, 2)))
    assert trust.changed == []


def test_a_script_that_changed_is_reported_and_recorded_text_helps(project):
    manifest, loader, net = as_script(project / "train.py", MAIN)
    x = torch.ones(1, 2)
    expected = net(x)
    (project / "train.py").write_text(MAIN.replace("* SCALE", "* SCALE * 2"))
    twin, trust = rebuild_of(manifest, loader, own=True)
    assert trust.changed == ["__main__:Net"]
    assert not torch.equal(twin(x), expected)
    (project / "train.py").unlink()
    with pytest.raises(CodeMissingError, match="--code recorded"):
        rebuild_of(manifest, loader, own=True)
    twin, trust = rebuild_of(manifest, loader, own=True, code="recorded")
    assert torch.equal(twin(x), expected)
    with pytest.raises(UntrustedNameError):
        rebuild_of(manifest, loader, names=["."], code="recorded")
    assert (project / "runs").read_text() == "x"


def test_a_class_that_only_a_run_defines_is_refused(project):
    text = MAIN.replace("class Net(nn.Module)", "class Net(make_base())")
    text = text.replace("SCALE = 7", "SCALE = 7\ndef make_base():\n    return nn.Module")
    manifest, loader, _ = as_script(project / "train.py", text)
    with pytest.raises(CodeMissingError, match=r"calls make_base.*--model"):
        rebuild_of(manifest, loader, own=True)


def test_the_running_script_needs_no_loading(project, monkeypatch):
    main = type(sys)("__main__")
    path = write(project, "train.py", MAIN)
    main.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(MAIN, str(path), "exec"), vars(main))
    table = TensorTable()
    description = describe({"": main.net}, table)
    storages, refs = table.export()
    trust = Trust(own=True, sources=description.sources)
    twin = rebuild(description.node, TensorLoader(refs, lambda n: storages[n].data), trust)[""]
    assert type(twin) is main.Net
    assert (project / "runs").read_text() == "x"


# The lists.


def test_every_listed_name_of_torch_exists_and_is_harmless():
    lists = schemas.load("trusted.json")
    mine = [
        name
        for name in lists["functions"]
        if name.startswith(("torch:", "torch.", "math:", "operator:", "builtins:"))
    ]
    trust = Trust()
    missing = []
    for name in mine:
        module, _, qualname = name.partition(":")
        try:
            found = trust.resolve_function(module, qualname)
        except CodeMissingError:
            missing.append(name)
            continue
        assert callable(found)
    assert len(missing) < 10, missing  # of a newer or older torch
    words = ("load", "save", "file", "exec", "eval", "import", "call", "attrgetter", "hub", "open")
    for name in lists["functions"]:
        assert not any(word in name.rpartition(":")[2].split("_") for word in words), name
    assert "torch:from_file" not in listed_functions()
    for key in lists:
        assert lists[key] == sorted(set(lists[key]), key=lists[key].index)


def test_listed_functions_work():
    trust = Trust()
    assert trust.resolve_function("torch", "_VariableFunctionsClass.relu") is torch.relu
    assert trust.resolve_function("torch", "relu") is torch.relu
    assert trust.resolve_function("torch._C._nn", "gelu") is nn.functional.gelu
    assert trust.resolve_function("torch.nn.functional", "silu") is nn.functional.silu
    assert trust.resolve_class("torch.nn.modules.normalization", "LayerNorm") is nn.LayerNorm
    made = attack(state=[["act", partial_of(function("torch.nn.functional:leaky_relu"), 0.1)]])
    assert isinstance(made.act, functools.partial)


def test_the_recording_side_knows_what_can_never_be_read():
    assert never(Need(Role.FUNCTION, "torch:from_file")) is not None
    assert never(Need(Role.FUNCTION, "torch:relu")) is None
    assert never(Need(Role.CLASS, "mine:Config")) is None
    assert needs_of(
        {"$": "list", "v": [function("a:b"), {"$": "dict", "v": [["class", "x:y"]]}]}
    ) == {Need(Role.FUNCTION, "a:b")}


# A factory that the user names.


def test_a_factory_is_found_by_name_and_by_file(project):
    write(
        project,
        "made/up.py",
        "def build():\n    return 3\n\nclass A:\n    make = staticmethod(build)\n",
    )
    assert load_factory("made.up:build")() == 3
    assert load_factory("made/up.py:build")() == 3
    assert load_factory("made.up:A.make")() == 3


@pytest.mark.parametrize("spec", ["made", "made:", ":build", "made:a b", ""])
def test_a_factory_that_cannot_be_meant(spec):
    with pytest.raises(UsageError, match="--model takes"):
        load_factory(spec)


@pytest.mark.parametrize(
    "spec", ["no_such_module_here:f", "no/such.py:f", "math:nothing", "math:pi"]
)
def test_a_factory_that_is_not_there(project, spec):
    with pytest.raises(CodeMissingError):
        load_factory(spec)
