"""Source text of the user's classes and functions, where it lies, and how much of it is kept."""

from __future__ import annotations

import ast
import hashlib
import linecache
import sys
import sysconfig
import tokenize
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from flightrec.tree.naming import globals_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from flightrec.types import Json

FILE_BYTES = 256 * 1024
"""Text of one file that is longer is left out and noted."""

TOTAL_BYTES = 2 * 1024 * 1024
"""All source text of one incident together; what does not fit is left out and noted."""

SCRIPT_MODULES = ("__main__", "__mp_main__")
"""Names under which Python runs a script; they cannot be imported elsewhere."""

_OURS = frozenset({"flightrec", "replay", "schemas"})
_INSTALLED = ("site-packages", "dist-packages")
_STDLIB = Path(sysconfig.get_path("stdlib")).resolve()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """The text of one class, function or (name without colon) whole module."""

    name: str
    """`package.module:Qualified.Name`, or `package.module` for a whole file."""

    file: str
    """Path relative to the repository, else to the current directory, else absolute."""

    line: int
    text: str

    def as_json(self) -> dict[str, Json]:
        """Return the entry of the manifest's `sources`."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """Where a user's module came from, so that it can be found again when no name leads there."""

    path: str | None
    """Absolute path, None for what was typed into a notebook or prompt."""

    hash: str
    """blake2b of the text, 16 bytes as hex."""

    package: str = ""
    """`__package__`, for the relative imports of a script run with `python -m`."""

    def as_json(self) -> dict[str, Json]:
        """Return the entry for the model node's `files`."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What `collect` found: texts for the manifest, files by module name, and what is missing."""

    texts: tuple[SourceText, ...] = ()
    files: Mapping[str, SourceFile]
    not_captured: tuple[dict[str, str], ...] = ()


def text_hash(text: str) -> str:
    """Return the blake2b hash of `text`, 16 bytes as hex."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=256)
def repository_root(folder: Path) -> Path | None:
    """Return the nearest folder at or above `folder` that holds `.git`, or None."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return None


def relative_path(path: str | Path) -> str:
    """Return `path` relative to its repository, else to the current directory, else absolute.

    A pseudo file such as `<stdin>` is returned as it is.
    """
    if str(path).startswith("<"):
        return str(path)
    full = Path(path).resolve()
    for base in (repository_root(full.parent), Path.cwd()):
        if base is not None and full.is_relative_to(base):
            return full.relative_to(base).as_posix()
    return str(full)


def is_installed(path: str | Path) -> bool:
    """Does `path` belong to an installed package, the standard library or `sys.prefix`?

    A prefix such as `/usr`, under which projects may live too, does not count by itself.
    """
    full = Path(path).resolve()
    if any(part in _INSTALLED for part in full.parts) or full.is_relative_to(_STDLIB):
        return True
    prefix = Path(sys.prefix).resolve()
    return (prefix / "pyvenv.cfg").exists() and full.is_relative_to(prefix)


def module_file(name: str) -> Path | None:
    """Return the file of a loaded module, None where it has none or is not loaded."""
    file = globals_of(name).get("__file__")
    return Path(file).resolve() if isinstance(file, str) else None


def is_user_module(name: str) -> bool:
    """Is the loaded module `name` the user's own code, not installed and not ours?"""
    if name in SCRIPT_MODULES:
        return True
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top in _OURS:
        return False
    file = module_file(name)
    return file is not None and not is_installed(file)


def _code_files(obj: Any) -> Iterator[str]:
    """Yield the files that the code of a function, or of a class's functions, says it is from."""
    if isinstance(obj, MethodType):
        obj = obj.__func__
    if isinstance(obj, FunctionType):
        yield obj.__code__.co_filename
    if isinstance(obj, type):
        for member in list(vars(obj).values()):
            function = member
            if isinstance(member, staticmethod | classmethod):
                function = member.__func__
            elif isinstance(member, property):
                function = member.fget
            if isinstance(function, FunctionType):
                yield function.__code__.co_filename


def source_files(obj: Any) -> Iterator[str]:
    """Yield the names of files in which a class or function may be written, likeliest first.

    A class's own module comes before the files of its functions, since those of dataclasses and
    named tuples are made elsewhere; a notebook's classes have no other.
    """
    file = module_file(getattr(obj, "__module__", None) or "")
    if isinstance(obj, type) and file is not None:
        yield str(file)
    yield from dict.fromkeys(_code_files(obj))
    if file is not None:
        yield str(file)


@lru_cache(maxsize=64)
def definitions(text: str) -> Mapping[str, tuple[int, int]]:
    """Return first and last line (from 1, decorators included) of each definition in `text`.

    Keys are qualified names, with `<locals>` as Python writes it; the last definition of a
    name wins. Text that is not Python has none.
    """
    found: dict[str, tuple[int, int]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                lines = [child.lineno, *(d.lineno for d in child.decorator_list)]
                found[prefix + child.name] = (min(lines), child.end_lineno or child.lineno)
                inner = f"{prefix}{child.name}."
                if not isinstance(child, ast.ClassDef):
                    inner += "<locals>."
            visit(child, inner)

    try:
        visit(ast.parse(text), "")
    except (SyntaxError, ValueError, RecursionError):
        return {}
    return found


def cut(text: str, qualname: str) -> tuple[int, str] | None:
    """Return the first line number and the text of the definition `qualname` inside `text`."""
    lines = definitions(text).get(qualname)
    if lines is None:
        return None
    first, last = lines
    return first, "".join(text.splitlines(keepends=True)[first - 1 : last])


def source_text(obj: Any) -> SourceText | None:
    """Return the text of a class or function, or None where there is none to be found."""
    qualname = getattr(obj, "__qualname__", None)
    if not isinstance(qualname, str):
        return None
    for file in source_files(obj):
        found = cut("".join(linecache.getlines(file)), qualname)
        if found is not None:
            name = f"{obj.__module__}:{qualname}"
            return SourceText(name=name, file=relative_path(file), line=found[0], text=found[1])
    return None


def _notebook_text(names: Mapping[str, Any]) -> str:
    """Join the cells that IPython keeps of this session and that are plain Python."""
    cells = names.get("In")
    if not isinstance(cells, list):
        return ""
    plain = []
    for cell in cells:
        try:
            ast.parse(cell)
        except (SyntaxError, ValueError, TypeError):
            continue
        plain.append(cell)
    return "\n".join(plain)


def file_text(path: Path) -> str:
    """Return the text of a Python file in the encoding that it declares, empty if unreadable."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""


def _module_text(name: str) -> tuple[str, Path | None]:
    file = module_file(name)
    if file is not None:
        return file_text(file), file
    return _notebook_text(globals_of(name)), None


def _user_modules(names: Iterable[str]) -> Iterator[str]:
    """Yield the user's modules among `names` and those their globals come from, breadth first."""
    queue = list(names)
    seen: set[str] = set()
    while queue:
        name = queue.pop(0)
        if name in seen or not is_user_module(name):
            continue
        seen.add(name)
        yield name
        if "." in name:
            queue.append(name.rpartition(".")[0])
        for value in list(globals_of(name).values()):
            other: Any = None
            if isinstance(value, ModuleType):
                other = value.__name__
            elif isinstance(value, type | FunctionType):
                other = getattr(value, "__module__", None)
            if isinstance(other, str):
                queue.append(other)


def collect(
    objects: Iterable[Any], *, file_bytes: int = FILE_BYTES, total_bytes: int = TOTAL_BYTES
) -> Sources:
    """Return the text of the user's classes and functions among `objects` and of their modules.

    Modules that these import from, as far as they are the user's, come too, so that the text
    alone can define the classes again. At most `total_bytes` of UTF-8 are kept, and no file of
    more than `file_bytes`; what is left out is listed in `not_captured`.
    """
    mine = {
        f"{obj.__module__}:{obj.__qualname__}": obj
        for obj in objects
        if is_user_module(getattr(obj, "__module__", None) or "")
    }
    texts: list[SourceText] = []
    missing: list[dict[str, str]] = []
    files: dict[str, SourceFile] = {}
    left = total_bytes

    def keep(entry: SourceText) -> None:
        nonlocal left
        size = len(entry.text.encode())
        if size > min(left, file_bytes):
            missing.append(
                {"what": f"source of {entry.name}", "why": f"{size} bytes are over the limit"}
            )
            return
        left -= size
        texts.append(entry)

    for name in sorted(mine):
        entry = source_text(mine[name])
        if entry is None:
            missing.append({"what": f"source of {name}", "why": "no text of it was found"})
        else:
            keep(entry)
    for name in _user_modules(sorted({obj.__module__ for obj in mine.values()})):
        text, path = _module_text(name)
        package = globals_of(name).get("__package__") or ""
        files[name] = SourceFile(
            path=None if path is None else str(path), hash=text_hash(text), package=package
        )
        if text:
            file = "<notebook>" if path is None else relative_path(path)
            keep(SourceText(name=name, file=file, line=1, text=text))
    return Sources(texts=tuple(texts), files=files, not_captured=tuple(missing))
