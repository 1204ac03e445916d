"""Sets: the end-to-end scripts once more, with another program under test.

`make check` runs one case of each set, `make check-full` every script that the set takes. A script says in its head
`# sets: WORD...`: `engines` (what scripts say that say nothing) for the sets that force an engine or take system
calls away, `builds` for those of another compiler or with a sanitizer, `none`.
"""
import subprocess

ONE_CASE = ("copy.sh", "first")  # of each set, in `check`
ENGINE = """#!/bin/sh
[ "$1" != copy ] || { shift; set -- copy --engine %s "$@"; }
exec '%s' "$@"
"""
# io_uring_setup, openat2, Landlock, copy_file_range
LACKING = """#!/bin/sh
exec '%s' 38 425 437 444 445 446 326 -- '%s' "$@"
"""


class Set:
    """kind: which scripts take part; variant: the build under test; engine: forced on every copy."""

    def __init__(self, name, kind, variant="release", engine=None, lacking=False):
        self.name, self.kind, self.variant, self.engine, self.lacking = name, kind, variant, engine, lacking

    def wrap(self, folder, program, sources):
        """Makes the program under test in `folder`; returns its path."""
        wrapper = folder / "penstock"
        if self.lacking:
            nosys = folder / "nosys"
            subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-o", nosys, sources / "nosys.c"], check=True)
            wrapper.write_text(LACKING % (nosys, program))
        elif self.engine:
            wrapper.write_text(ENGINE % (self.engine, program))
        else:
            return program
        wrapper.chmod(0o755)
        return wrapper


SETS = [
    Set("aio", "engines", engine="aio"),
    Set("threads", "engines", engine="threads"),
    Set("lacking", "engines", lacking=True),
    Set("clang", "builds", "clang"),
    Set("asan", "builds", "asan"),
    Set("asan-threads", "builds", "asan", engine="threads"),
    Set("tsan", "builds", "tsan"),
    Set("tsan-threads", "builds", "tsan", engine="threads"),
]
