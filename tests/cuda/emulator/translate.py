"""CUDA C++ to C++ for g++: assembly becomes calls of instructions.h, shared variables get a place in their block.

All else is left as it is and means what device.h says.
"""

from __future__ import annotations

import ast
import re

_ASM = re.compile(r"\basm\s*(?:volatile\s*)?\(")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_DYNAMIC = re.compile(r"^([ \t]*)extern __shared__ (.+?)\s*(\w+)\[\];", re.M)
_SHARED = re.compile(r"^([ \t]*)__shared__ ([^;]+?) (\w+(?:\[[^;]*)?);", re.M)
_ENTRY = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\s*\(")
_REGISTERS = {".pred": "bool", ".b32": "unsigned", ".b64": "unsigned long long", ".f32": "float"}
_PTX = "emulator::ptx::"
_STATEMENT = re.compile(r"\s*(?:(?P<brace>[{}])|(?P<label>\w+):(?!:)|(?P<instruction>[^;]+);)\s*")


def translate(source: str) -> str:
    """The same source for g++."""
    source = _without_assembly(source)
    # A reference to what is set whenever another block's thread goes on.
    dynamic = r"\1static \2* const& \3 = reinterpret_cast<\2* const&>(emulator::dynamic_shared);"
    return _SHARED.sub(_shared, _DYNAMIC.sub(dynamic, source))


def entries(source: str) -> list[str]:
    """The names of the kernels in it."""
    return list(dict.fromkeys(_ENTRY.findall(source)))  # one that has several heads, chosen by macros, once


def _shared(found: re.Match[str]) -> str:
    indent, kind, variables = found.groups()
    lines = []
    for variable in _split(variables, ","):
        name = variable.split("[")[0]
        alias = f"emulated_{name}"
        lines.append(f"using {alias} = {kind}{variable[len(name) :]};")
        lines.append(f"{alias}& {name} = emulator::shared_variable<{alias}>([] {{}});")
    return indent + " ".join(lines)


def _without_assembly(source: str) -> str:
    parts, end = [], 0
    for found in _ASM.finditer(source):
        close = _closing(source, found.end())
        sections = _split(source[found.end() : close], ":")
        template = "".join(ast.literal_eval(text) for text in _STRING.findall(sections[0])).replace("%%", "%")
        operands = [_expression(each) for section in sections[1:3] for each in _split(section, ",")]
        parts += source[end : found.start()], _call(template, operands)
        end = close + 1 + source[close + 1 :].index(";") + 1
    return "".join([*parts, source[end:]])


def _call(template: str, operands: list[str]) -> str:
    """A block that does what the instructions do; {} for a hint to the compiler."""
    out = []
    at = 0
    while at < len(template.rstrip()):
        found = _STATEMENT.match(template, at)
        assert found is not None, f"not understood: {template[at:]}"
        at = found.end()
        if found["brace"]:
            out.append(found["brace"])
        elif found["label"]:
            out.insert(0, f"__label__ {_own(found['label'])};")
            out.append(f"{_own(found['label'])}:")
        else:
            out.append(_instruction(found["instruction"].strip(), operands))
    return "{ " + " ".join(out) + " }"


def _instruction(text: str, operands: list[str]) -> str:
    found = re.fullmatch(r"(?:@(!?)(\w+)\s+)?(\S+)\s*(.*)", text, re.S)
    assert found is not None, f"not understood: {text}"
    negated, predicate, name, rest = found.groups()
    if name == ".reg":
        kind, registers = rest.split(None, 1)
        return f"{_REGISTERS[kind]} {', '.join(_own(each) for each in _split(registers, ','))};"
    condition = f"if ({negated}{_own(predicate)}) " if predicate else ""
    if name == "bra":
        return f"{condition}goto {_own(rest)};"
    values = [each for each in re.split(r"[\s,{}\[\]]+", rest) if each not in ("", "_")]
    arguments = ", ".join(_operand(each, operands) for each in values)
    return f"{condition}{_PTX}{_identifier(name)}({arguments});"


def _operand(text: str, operands: list[str]) -> str:
    if re.fullmatch(r"%\d+", text):
        return operands[int(text[1:])]
    if text.startswith("%"):
        return f"{_PTX}{_identifier(text[1:])}()"
    return text if text[0].isdigit() or text[0] == "-" else _own(text)


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _own(name: str) -> str:
    """Of a register or label, which must not hide a variable that an operand names."""
    return f"ptx_{name}"


def _expression(operand: str) -> str:
    """Of `"r"(expression)`, with its parentheses."""
    return operand[_STRING.match(operand).end() :].strip()


def _closing(source: str, start: int) -> int:
    """Where the parenthesis that is open at `start` is closed."""
    depth = 1
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[()]', source[start:]):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth == 0:
            return start + token.start()
    raise ValueError("a parenthesis is not closed")


def _split(text: str, separator: str) -> list[str]:
    """At separators that no string and no bracket holds; what is empty between commas is left out."""
    parts, depth = [""], 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|.', text, re.S):
        depth += (token[0] in "([{") - (token[0] in ")]}")
        if token[0] == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += token[0]
    parts = [part.strip() for part in parts]
    return [part for part in parts if part] if separator == "," else parts
