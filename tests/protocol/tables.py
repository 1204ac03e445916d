#!/usr/bin/python3
"""The tables of proto/PROTOCOL.md that derive from the headers: messages, error classes, limits.

    tables.py            print them
    tables.py --check    fail when a table in the document is another, or no words explain what it has
    tables.py --write    put them into the document

A table stands between two comments, `<!-- NAME: from HEADER, by make protocol-tables -->` and `<!-- end of NAME -->`.
The headers are read strictly: what is not understood is an error, never left out. `--root DIR` reads another tree.
"""
import argparse
import ast
import re
import sys
from pathlib import Path

DOCUMENT = "proto/PROTOCOL.md"
FIXED = ("u8", "u16", "u32", "u64", "id", "digest", "secret")
UNITS = ("KIB", "MIB")  # no limits of their own
ACTIONS = {
    "ERR_RETRY_STRIPE": "the stripe is sent again",
    "ERR_RETRY_PATH": "the connection is dialled again",
    "ERR_FAIL_ENTRY": "the entry is not moved, the rest is",
    "ERR_STOP_JOB": "the job stops and can go on",
    "ERR_REFUSE": "nothing is started",
}


class Malformed(Exception):
    """A header or the document is not as this program expects it."""


def read(root, name):
    return (root / name).read_text(encoding="utf-8")


def whole_matches(pattern, text, what):
    """All matches of the pattern, between which there is nothing but blanks."""
    matches, at = [], 0
    for found in re.finditer(pattern, text, re.VERBOSE):
        if text[at:found.start()].strip():
            raise Malformed(f"{what}: cannot read '{text[at:found.start()].strip()}'")
        matches.append(found)
        at = found.end()
    if text[at:].strip():
        raise Malformed(f"{what}: cannot read '{text[at:].strip()}'")
    return matches


def macros(text):
    """{name: body} of the function-like macros, continued lines joined, comments gone."""
    text = re.sub(r"/\*.*?\*/", " ", re.sub(r"//.*", "", text.replace("\\\n", " ")), flags=re.DOTALL)
    found = {}
    for name, body in re.findall(r"^#define (\w+)\([^)]*\)(.*)$", text, re.MULTILINE):
        if name in found:
            raise Malformed(f"{name} is defined twice")
        found[name] = body
    return found


# ---- limits ----


def value_of(expression, names):
    """The number that a constant expression stands for."""
    def walk(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        if isinstance(node, ast.BinOp):
            left, right = walk(node.left), walk(node.right)
            for kind, result in ((ast.Add, left + right), (ast.Sub, left - right), (ast.Mult, left * right)):
                if isinstance(node.op, kind):
                    return result
            if isinstance(node.op, ast.FloorDiv):
                return left // right
            if isinstance(node.op, ast.LShift):
                return left << right
        raise Malformed(f"cannot compute '{expression}'")

    plain = re.sub(r"UINT64_C\((\w+)\)", r"\1", expression)
    plain = plain.replace("(uint64_t)INT64_MAX", str(2**63 - 1)).replace("/", "//")
    try:
        return walk(ast.parse(plain.strip(), mode="eval").body)
    except SyntaxError as error:
        raise Malformed(f"cannot compute '{expression}'") from error


def limits(root):
    """[(name, value, words)]: the words behind a limit, or else those of the comment before it."""
    names, rows, before = {}, [], []
    started = False
    for line in read(root, "proto/limits.h").splitlines():
        line = line.strip()
        started = started or line == "enum {"
        if not started or line in ("enum {", "};", "#endif"):
            continue
        if line.startswith("//"):
            before.append(line[2:].strip())
            continue
        found = re.fullmatch(r"(\w+) = ([^,]+),(?:\s*// (.*))?", line) or re.fullmatch(r"#define (\w+)\s+(.+?)()", line)
        if line and not found:
            raise Malformed(f"limits.h: cannot read '{line}'")
        if found:
            names[found[1]] = value_of(found[2], names)
            if found[1] not in UNITS:
                rows.append((found[1], names[found[1]], found[3] or " ".join(before)))
        before = []
    if not rows:
        raise Malformed("limits.h: no limits")
    return rows


def limits_table(root):
    yield "| limit | | of |"
    yield "| --- | ---: | --- |"
    for name, value, words in limits(root):
        yield f"| {name} | {value} | {words.replace('|', '/')} |"


# ---- messages ----


def fields(name, body, names):
    """The fields of one message, as the table spells them."""
    shape = r"""F \(\s* (?P<type>\w+) \s*,\s* (?P<field>\w+) \s*\)
              | B \(\s* (?P<blob>\w+) \s*,\s* (?P<max>[^(),]+?) \s*\)"""
    seen = set()
    for found in whole_matches(shape, body, name):
        field = found["field"] or found["blob"]
        if field in seen:
            raise Malformed(f"{name}: the field {field} stands there twice")
        seen.add(field)
        if found["blob"]:
            yield f"blob {field} ≤ {value_of(found['max'], names)}"
        elif found["type"] in FIXED:
            yield f"{found['type']} {field}"
        else:
            raise Malformed(f"{name}: the type {found['type']} is unknown")


def messages_table(root):
    defined = macros(read(root, "proto/messages.h"))
    names = {name: value for name, value, _ in limits(root)} | {"KIB": 1024, "MIB": 1024 * 1024}
    listed = whole_matches(r"M \(\s* (\d+) \s*,\s* (\w+) \s*,\s* (\w+) \s*\)", defined.pop("MESSAGES", ""), "MESSAGES")
    yield "| number | message | fields |"
    yield "| ---: | --- | --- |"
    for expected, found in enumerate(listed, 1):
        number, name, lower = int(found[1]), found[2], found[3]
        if number != expected or lower != name.lower():
            raise Malformed(f"MESSAGES: {number} {name} {lower} is out of order or has two names")
        if f"MSG_{name}" not in defined:
            raise Malformed(f"MESSAGES: {name} has no fields")
        yield f"| {number} | {name} | {', '.join(fields(name, defined.pop(f'MSG_{name}'), names))} |"
    if defined or not listed:
        raise Malformed(f"not in MESSAGES: {', '.join(defined) or 'anything'}")


# ---- error classes ----


def errors_table(root):
    text = read(root, "proto/err.h").replace("\\\n", " ")
    body = re.search(r"^#define ERR_CLASSES\(X\)(.*)$", text, re.MULTILINE)
    if body is None:
        raise Malformed("err.h: no ERR_CLASSES")
    shape = r"""X \( (\w+) ,\s* "(\w+)" ,\s* (\w+) ,\s* (\d+) \) \s* (?:/\* \s* (.*?) \s* \*/)?"""
    yield "| number | class | then | exit | such as |"
    yield "| ---: | --- | --- | ---: | --- |"
    for number, found in enumerate(whole_matches(shape, body[1], "ERR_CLASSES")):
        if found[3] not in ACTIONS or found[1] != f"ERR_{found[2].upper()}":
            raise Malformed(f"ERR_CLASSES: cannot read {found[0]}")
        action = ACTIONS[found[3]] if number > 0 else ""
        yield f"| {number} | {found[2]} | {action} | {found[4]} | {found[5] or ''} |"


# ---- the document ----

TABLES = {
    "messages": ("proto/messages.h", messages_table),
    "error classes": ("proto/err.h", errors_table),
    "limits": ("proto/limits.h", limits_table),
}


def marks(name):
    return f"<!-- {name}: from {TABLES[name][0]}, by make protocol-tables -->", f"<!-- end of {name} -->"


def replace(document, name, table):
    """The document with this table in its place."""
    begin, end = marks(name)
    if document.count(begin) != 1 or document.count(end) != 1 or document.index(begin) > document.index(end):
        raise Malformed(f"{DOCUMENT} must have '{begin}' and '{end}' once, in this order")
    head, tail = document.split(begin)[0], document.split(end)[1]
    return f"{head}{begin}\n\n{table}\n\n{end}{tail}"


def unspoken(document):
    """Messages and fields that the table has and no words explain."""
    begin, end = marks("messages")
    table, words = document.split(begin)[1].split(end)[0], document.split(begin)[0] + document.split(end)[1]
    for name, fields_text in re.findall(r"^\| \d+ \| (\w+) \| (.+) \|$", table, re.MULTILINE):
        if not re.search(rf"\b{name}\b", words):
            yield name
        for field in re.findall(r"(?:^|, )\w+ (\w+)", fields_text):
            if f"`{field}`" not in words:
                yield f"{field} of {name}"


def main():
    parser = argparse.ArgumentParser(description="The tables of PROTOCOL.md that derive from the headers.")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent.parent)
    options = parser.parse_args()
    tables = {name: "\n".join(make(options.root)) for name, (_, make) in TABLES.items()}
    if not options.check and not options.write:
        print("\n\n".join(tables.values()))
        return 0
    document = wanted = read(options.root, DOCUMENT)
    for name, table in tables.items():
        before, wanted = wanted, replace(wanted, name, table)
        if options.check and before != wanted:
            print(f"{DOCUMENT}: the table of {name} is not what {TABLES[name][0]} says: make protocol-tables")
    if options.write and wanted != document:
        (options.root / DOCUMENT).write_text(wanted, encoding="utf-8")
    silent = list(unspoken(wanted)) if options.check else []
    if silent:
        print(f"{DOCUMENT} has no words about {', '.join(silent)}")
    return 1 if options.check and (wanted != document or silent) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Malformed as malformed:
        sys.exit(f"tables.py: {malformed}")
