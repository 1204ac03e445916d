#!/usr/bin/python3
"""The house rules that a machine can check. One result line a rule, each finding on the log.

Findings that are meant to be stand in tests/lint/exceptions, one a line: RULE SUBJECT REASON. An exception that
nothing needs any more is a finding too.
"""
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OBJECTS = Path(os.environ.get("BUILD", ROOT / "build/release")) / "obj"

LINES = {".c": 500, ".h": 250}
FUNCTION_LINES = 70
TOP_LEVEL = set("""
    .ci .clang-format .editorconfig .gitattributes .gitignore CHANGELOG.md CONTRIBUTING.md LICENSE Makefile
    README.md SECURITY.md docs mover packaging proto storage tests tools
    """.split())

# What each folder may include, itself first. Folders not named here (the tests) may include anything.
LAYERS = {
    "proto": ("proto",),
    "storage": ("storage", "proto"),
    "mover/plan": ("mover/plan", "proto"),
    "mover": ("mover", "mover/plan", "storage", "proto"),
    "tools": ("tools", "mover", "mover/plan", "storage", "proto"),
}
PURE = ("proto", "mover/plan")

# Each external library has one home.
HOMES = [
    (r"xxh\w+\.h", "proto/digest.c"),
    (r"openssl/ssl\.h", "mover/tls.c"),
    (r"openssl/err\.h", "mover/tls.c proto/seal.c"),
    (r"openssl/.*", "proto/seal.c"),
    (r"liburing.*", "mover/engine_uring.c"),
    (r"libaio\.h", "mover/engine_aio.c"),
    (r"jansson\.h", "tools/report.c"),
]
SYSTEM = re.compile(r"""(sys|linux|netinet|arpa|net|asm)/\w+\.h|(
    aio|assert|byteswap|ctype|dirent|endian|errno|fcntl|fnmatch|getopt|glob|grp|ifaddrs|inttypes|libgen|limits|
    locale|mntent|netdb|poll|pthread|pwd|regex|sched|search|signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|
    stdint|stdio|stdlib|string|strings|syslog|termios|threads|time|unistd|wchar
    )\.h""", re.VERBOSE)

# What a pure object may call: memory, text, checks, digests and ciphers. No descriptor, clock or thread.
PURE_CALLS = re.compile(r"""
    mem(cpy|move|set|cmp|chr|rchr|mem|pcpy) | __(mem|str|stp)\w+_chk | __v?s(n)?printf_chk | explicit_bzero |
    str(len|nlen|cmp|ncmp|chr|rchr|chrnul|str|spn|cspn|pbrk|dup|ndup|cpy|ncpy|cat|ncat|tok_r|sep|casecmp|ncasecmp) |
    strto(l|ul|ll|ull|umax|imax) | __isoc\d+_strto\w+ | strerror(name|desc)_np | stp(cpy|ncpy) |
    malloc | calloc | realloc | reallocarray | free | aligned_alloc | posix_memalign |
    v?snprintf | v?asprintf | qsort | bsearch | abort | __assert_fail | __stack_chk_fail |
    is\w+ | to(lower|upper) | __ctype_\w+_loc | _GLOBAL_OFFSET_TABLE_ |
    XXH\w+ | (EVP|CRYPTO|HMAC|OPENSSL|OSSL|ERR)_\w+
    """, re.VERBOSE)

WORK_MARK = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X])\b")
# Traces of one machine or of how the work was organised.
TRACES = re.compile(r"""(?<![\w}"'.*])/([w]ork|[r]oot|tmp/[b]rief)/|\.[p]yenv|\b[i]ssue #?\d""")


def tracked():
    """Every file of the repository, or of the folder when it is no repository."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        names = listed.stdout.split("\0")
    else:
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")
                 if not p.is_relative_to(ROOT / "build") and p.parent.name != "__pycache__"]
    return sorted(name for name in set(names) if name and (ROOT / name).is_file())


FILES = tracked()
SOURCES = [name for name in FILES if name.endswith((".c", ".h"))]


def read(name):
    return (ROOT / name).read_text(errors="replace")


def layer(name):
    """The layer a file belongs to, or None: the longest named folder that holds it."""
    inside = [folder for folder in LAYERS if name.startswith(folder + "/")]
    return max(inside, key=len, default=None)


def includes(name):
    """(line number, "<" or '"', header) of each include."""
    for number, line in enumerate(read(name).splitlines(), 1):
        if found := re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line):
            yield number, found[1], found[2]


# ---- the rules: each yields (subject, finding) ----


def rule_layers():
    """Includes are relative to the root and point along tools -> mover -> storage -> proto."""
    for name in SOURCES:
        here = layer(name)
        for number, quote, header in includes(name):
            if quote != '"' or here is None:
                continue
            if not (ROOT / header).exists():
                yield name, f"line {number}: there is no {header}"
            elif layer(header) not in LAYERS[here]:
                yield name, f"line {number}: {here}/ must not include {header}"


def rule_libraries():
    """Each external library is included in its home only; unknown libraries have none."""
    for name in SOURCES:
        for number, quote, header in includes(name):
            if quote != "<" or layer(name) is None or SYSTEM.fullmatch(header):
                continue
            home = next((home for pattern, home in HOMES if re.fullmatch(pattern, header)), "")
            if name not in home.split():
                yield name, f"line {number}: <{header}> belongs into {home or 'the table of tests/lint/rules.py first'}"


def symbols(name, kind):
    """The external symbols that an object defines (kind "--defined-only") or needs ("--undefined-only")."""
    path = OBJECTS / Path(name).with_suffix(".o")
    listed = subprocess.run(["nm", "--extern-only", "--format=posix", kind, path], capture_output=True, text=True,
                            check=True)
    return {line.split()[0] for line in listed.stdout.splitlines()}


def rule_pure():
    """The objects of proto/ and mover/plan/ call nothing that has a descriptor, a clock or a thread."""
    pure = [name for name in SOURCES if name.endswith(".c") and layer(name) in PURE]
    own = set().union(*(symbols(name, "--defined-only") for name in pure))
    for name in pure:
        for symbol in sorted(symbols(name, "--undefined-only") - own):
            if not PURE_CALLS.fullmatch(symbol):
                yield name, f"calls {symbol}"


def rule_sizes():
    """Files and functions stay short."""
    for name in SOURCES:
        lines = read(name).splitlines()
        limit = LINES[Path(name).suffix]
        if len(lines) > limit:
            yield name, f"{len(lines)} lines, the limit is {limit}"
        start = None
        for number, line in enumerate(lines, 1):
            if line == "{":
                start = number
            elif line == "}" and start is not None:
                if number - start + 1 > FUNCTION_LINES:
                    yield name, f"line {start}: a function of {number - start + 1} lines, the limit is {FUNCTION_LINES}"
                start = None


def rule_headers():
    """Each header compiles alone, and twice."""
    def compile_alone(name):
        command = ["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I.", "-fsyntax-only", "-xc", "-"]
        return subprocess.run(command, input=f'#include "{name}"\n' * 2, cwd=ROOT, capture_output=True, text=True,
                              check=False)

    headers = [name for name in SOURCES if name.endswith(".h")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, result in zip(headers, pool.map(compile_alone, headers)):
            if result.returncode != 0:
                yield name, next((line for line in result.stderr.splitlines() if "error" in line), result.stderr)


def rule_top_level():
    """The top level holds only what is agreed."""
    for name in sorted({name.split("/")[0] for name in FILES} - TOP_LEVEL):
        yield name, "is not one of the allowed names"


def rule_marks():
    """No notes to oneself, no traces of a machine or of how the work was organised."""
    for name in FILES:
        for number, line in enumerate(read(name).splitlines(), 1):
            if found := WORK_MARK.search(line) or TRACES.search(line):
                yield name, f"line {number}: {found[0]}"


def rule_text():
    """Text files end with a newline and have no trailing blanks; only the Makefile is indented with tabs."""
    for name in FILES:
        if not name.endswith((".c", ".h", ".py", ".sh")):
            continue
        text = read(name)
        if text and not text.endswith("\n"):
            yield name, "has no newline at its end"
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip() or "\t" in line or "\r" in line:
                yield name, f"line {number}: a tab, a carriage return or a trailing blank"


def read_exceptions():
    """{(rule, subject)} that may have findings; each needs a reason."""
    exceptions = set()
    for line in read("tests/lint/exceptions").splitlines():
        if line and not line.startswith("#"):
            rule, subject, _reason = line.split(maxsplit=2)
            exceptions.add((rule, subject))
    return exceptions


def report(rule, findings, began):
    for subject, finding in findings:
        print(f"{rule}: {subject}: {finding}")
    if findings:
        subject, finding = findings[0]
        print(f"not ok lint.{rule} {len(findings)} findings, the first: {subject}: {finding}")
    else:
        print(f"ok lint.{rule} {time.monotonic() - began:.2f}")


def main():
    exceptions = read_exceptions()
    used = set()
    for name, rule in list(globals().items()):
        if not name.startswith("rule_"):
            continue
        began = time.monotonic()
        rule_name = name.removeprefix("rule_")
        findings = list(rule())
        used |= {(rule_name, subject) for subject, _ in findings}
        report(rule_name, [f for f in findings if (rule_name, f[0]) not in exceptions], began)
    report("exceptions", [(subject, f"has no {rule} finding any more") for rule, subject in sorted(exceptions - used)],
           time.monotonic())


if __name__ == "__main__":
    main()
