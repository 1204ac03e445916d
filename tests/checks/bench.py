#!/usr/bin/python3
# tier: check
# cap: 120
"""The measuring side: statistics with known values, records, targets, tables, one run; and that the yardstick moves
what it says that it moves."""
import csv
import io
import json
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/bench"))

from harness import data, machine, measure, record, rows, runs, servers, stats, table, targets  # noqa: E402

WORK = Path(os.environ["WORK"])
LIMIT = Path(os.environ["BUILD"]) / "bench/limit"
ORIGIN = {"commit": "abc", "machine": "a machine", "date": "2026-01-02T03:04:05Z"}


class Statistics(unittest.TestCase):
    def test_median(self):
        for values, expected in [([3, 1, 2], 2), ([4, 1, 3, 2], 2.5), ([7], 7)]:
            self.assertEqual(stats.median(values), expected)

    def test_interval(self):
        """Ranks from the published tables of the sign test, 95 %."""
        for n, low, high in [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (12, 3, 10), (15, 4, 12), (20, 6, 15),
                             (25, 8, 18), (30, 10, 21)]:
            shuffled = [(7 * i) % 31 for i in range(31) if 0 < (7 * i) % 31 <= n]
            self.assertEqual(sorted(shuffled), list(range(1, n + 1)))
            self.assertEqual(stats.interval(shuffled), (low, high), f"of {n}")
        self.assertIsNone(stats.interval([1, 2, 3, 4, 5]))
        self.assertIsNone(stats.interval([]))
        self.assertEqual(stats.interval(range(1, 10), confidence=0.99), (1, 9))

    def test_paired(self):
        """By rounds, not sorted; a round without one of the two does not count."""
        self.assertEqual(stats.paired_ratios([2, None, 9, 8, 1], [1, 1, 3, None, 0]), [2, 3])

    def test_verdict(self):
        for bounds, operator, bound, expected in [
                ((0.9, 1.1), ">=", 0.9, "holds"), ((0.89, 1.1), ">=", 0.9, "not decidable"),
                ((0.5, 0.9), ">=", 0.9, "not decidable"), ((0.5, 0.89), ">=", 0.9, "fails"),
                ((1.0, 1.2), "<=", 1.2, "holds"), ((1.1, 1.3), "<=", 1.2, "not decidable"),
                ((1.21, 1.3), "<=", 1.2, "fails"), (None, ">=", 0.9, "not decidable")]:
            self.assertEqual(stats.verdict(bounds, operator, bound), expected, f"{bounds} {operator} {bound}")
        with self.assertRaises(ValueError):
            stats.verdict((1, 2), ">", 1)


class Records(unittest.TestCase):
    def test_made(self):
        ours = [2.0, 4.0, None, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0]
        theirs = [1.0, 1.0, 3.0, 1.0, None] + [1.0] * 6
        made = record.make(ORIGIN, "large.ext4/a/speed", "GB/s", ours, "large.ext4/b/speed", theirs)
        self.assertEqual(tuple(made), record.FIELDS)
        self.assertEqual((made["median"], made["min"], made["max"]), (13.0, 2.0, 22.0))
        # nine pairs: 2 4 8 12 14 16 18 20 22
        self.assertEqual((made["ratio"], made["interval"]), (14.0, [4.0, 20.0]))
        self.assertEqual(record.load(record.dump(made)), made)

    def test_few_rounds(self):
        """Eight decide nothing, alone or in pairs."""
        alone = record.make(ORIGIN, "a.b/c/d", "s", list(range(8)) + [None])
        paired = record.make(ORIGIN, "a.b/c/d", "s", [1.0] * 9, "a.b/e/d", [1.0] * 8 + [None])
        self.assertEqual((alone["interval"], paired["interval"]), (None, None))
        self.assertIsNone(alone["ratio"])
        self.assertEqual(record.make(ORIGIN, "a.b/c/d", "s", list(range(9)))["interval"], [1, 7])

    def test_nothing(self):
        made = record.make(ORIGIN, "a.b/c/d", "s", [None, None])
        self.assertEqual([made[name] for name in ("median", "min", "max", "ratio", "interval")], [None] * 5)

    def test_refused(self):
        good = record.make(ORIGIN, "a.b/c/d", "s", [1.0])
        for line in ["", "{", "[]", "1", json.dumps({**good, "schema": "other-1"}),
                     json.dumps({k: v for k, v in good.items() if k != "unit"}), json.dumps({**good, "row": "a/b"})]:
            with self.assertRaises(ValueError, msg=line):
                record.load(line)
        path = WORK / "bad.jsonl"
        path.write_text(f"{record.dump(good)}\nnoise\n")
        with self.assertRaisesRegex(ValueError, "line 2"):
            record.read(path)


class Targets(unittest.TestCase):
    def test_compared(self):
        medians = {f"large.ext4/{c}/speed": v for c, v in [("penstock-clear", 2), ("limit", 3), ("gridftp", 1)]}
        self.assertEqual(targets.compared_with("large.ext4/penstock-clear/speed", medians),
                         ["large.ext4/limit/speed", "large.ext4/gridftp/speed"])
        quick = {f"quick-{row}": value for row, value in medians.items()}
        self.assertEqual(targets.compared_with("quick-large.ext4/penstock-clear/speed", quick),
                         ["quick-large.ext4/limit/speed", "quick-large.ext4/gridftp/speed"])
        self.assertEqual(targets.compared_with("large.ext4/gridftp/speed", medians), [])

    def test_best(self):
        """The best of the streams but oneself; of limit's none counts. Less is better of times."""
        medians = {f"streams-large.ext4/{c}/speed": v for c, v in
                   [("penstock-clear-s1", 2), ("penstock-clear-s4", 3), ("limit-s1", 9)]}
        best = "streams-large.ext4/penstock-clear-s4/speed"
        self.assertEqual(targets.compared_with("streams-large.ext4/penstock-clear-s1/speed", medians), [best])
        self.assertEqual(targets.compared_with(best, medians), [])

    def test_judged(self):
        def bound(row, against):
            target = targets.judged(row, against)
            return target and (target.operator, target.bound)

        self.assertEqual(bound("large.ext4/penstock-clear/speed", "large.ext4/limit/speed"), (">=", 0.9))
        self.assertEqual(bound("many.ext4/penstock-clear/machine", "many.ext4/limit/machine"), ("<=", 1.2))
        self.assertEqual(bound("streams-large.ext4/penstock-clear-s1/speed",
                               "streams-large.ext4/penstock-clear-s4/speed"), (">=", 0.88))
        self.assertEqual(bound("streams-large.ext4/penstock-clear-s4/resident", None), ("<=", 96))
        self.assertEqual(bound("streams-large.tmpfs/penstock-clear-s16/resident", None), ("<=", 256))
        self.assertIsNone(bound("large.tmpfs/penstock-clear/speed", "large.tmpfs/limit/speed"))
        self.assertIsNone(bound("quick-large.ext4/penstock-clear/speed", "quick-large.ext4/limit/speed"))
        self.assertIsNone(bound("large.ext4/penstock-clear/speed", None))

    def test_of_rows(self):
        """Every target is of rows and columns that there are."""
        known = [f"{row.name}/{column.name}" for row in rows.all_rows(rows.Tools("p", "l", [], [1, 2, 4, 8, 16]))
                 for column in row.columns]
        for target in targets.TARGETS:
            ours = [name for name in known if targets.fnmatchcase(name, target.row.rsplit("/", 1)[0])]
            self.assertTrue(ours, target)
            others = [target.against.format(name.split("/")[0]).rsplit("/", 1)[0] for name in ours if target.against]
            self.assertTrue(not others or any(targets.fnmatchcase(name, other) for name in known for other in others),
                            target)


class Tables(unittest.TestCase):
    FOUND = [record.make(ORIGIN, "large.ext4/penstock-clear/speed", "GB/s", [2.0 + i / 100 for i in range(9)]),
             record.make(ORIGIN, "large.ext4/penstock-clear/speed", "GB/s", [2.0 + i / 100 for i in range(9)],
                         "large.ext4/limit/speed", [2.0] * 9),
             record.make(ORIGIN, "large.ext4/limit/speed", "GB/s", [2.0] * 9)]

    def test_text(self):
        lines = table.text(self.FOUND).splitlines()
        self.assertRegex(lines[0], "large.ext4 +9 rounds, commit abc")
        self.assertTrue(any(line.split() == ["penstock-clear", "2.04"] for line in lines), lines)
        self.assertTrue(any(line.split() == ["penstock-clear", "speed", "limit", "1.02", "1.00-1.03", ">=", "0.9",
                                             "holds"] for line in lines), lines)

    def test_csv(self):
        file = io.StringIO()
        table.write_csv(self.FOUND, file)
        head, *lines = list(csv.reader(io.StringIO(file.getvalue())))
        self.assertEqual(head, [*record.FIELDS, "bound", "verdict"])
        self.assertEqual([dict(zip(head, line))["verdict"] for line in lines], ["", "holds", ""])
        self.assertEqual(dict(zip(head, lines[1]))["interval"], "1.005 1.035")


class Running(unittest.TestCase):
    def test_cpu(self):
        """The CPU time of a child's child counts, the harness's own does not."""
        meter = machine.CpuMeter()
        try:
            burn = "import time\nwhile time.process_time() < 0.3: pass"
            run = runs.run(meter, [["sh", "-c", f"{sys.executable} -c '{burn}'; true"]])
            before = meter.used_s()
            while time.process_time() < 1.0:
                pass
            self.assertLess(meter.used_s() - before, 0.1)
        finally:
            meter.close()
        self.assertEqual(run.error, "")
        self.assertGreater(run.cpu_s, 0.29)
        self.assertLess(run.cpu_s, 0.6)
        self.assertGreaterEqual(run.wall_s, 0.29)
        self.assertGreater(run.machine_s, 0.2)

    def test_failure(self):
        meter = machine.CpuMeter()
        run = runs.run(meter, [["true"], ["sh", "-c", "echo no luck >&2; exit 3"]], WORK)
        meter.close()
        self.assertEqual(run.error, "sh ended with 3: no luck")

    def test_server(self):
        """One that ends at once is told of, with its words."""
        meter = machine.CpuMeter()
        server = servers.Server(meter, ["sh", "-c", "echo no port; exit 1"], WORK, 1)
        with self.assertRaisesRegex(servers.ServerError, "a server does not start: no port"):
            server.await_(server.accepts, "a server")
        meter.close()

    def test_data(self):
        """What is made is complete, and what lacks a file or a byte is not."""
        made = data.Data("some", 3, 5000, folders=2)
        top = made.make(WORK)
        self.assertIsNone(data.complete(top, made))
        lists = made.lists(top, 4)
        self.assertEqual(sorted(sum(lists, [])), [f"d00{d}/f0000{f}" for d in range(2) for f in range(3)])
        os.truncate(top / "d000/f00001", 4999)
        self.assertIn("29999", data.complete(top, made))
        os.unlink(top / "d000/f00001")
        self.assertIn("5 files", data.complete(top, made))
        data.empty(top)
        self.assertEqual(os.listdir(top), [])


class Limit(unittest.TestCase):
    """In each form, files of all sizes arrive whole."""

    @classmethod
    def setUpClass(cls):
        cls.source = WORK / "source"
        (cls.source / "deep/er").mkdir(parents=True)
        for name, size in [("large", (5 << 20) + 123), ("deep/mib", 1 << 20), ("deep/over", (1 << 20) + 1),
                           ("deep/er/small", 100), ("empty", 0)]:
            data.write_random(cls.source / name, size)

    def limit(self, *words):
        return subprocess.run([LIMIT, *words], capture_output=True, text=True, check=False, timeout=60)

    def test_forms(self):
        for number, words in enumerate([[], ["--sealed"], ["--buffered"], ["--map"], ["--map", "--sealed"],
                                        ["--streams", "3", "--piece", "64K", "--lowat", "64K", "--sealed"],
                                        ["--unit", "1M", "--slots", "1", "--piece", "1M"]]):
            target = WORK / f"target{number}"
            target.mkdir()
            done = self.limit(*words, self.source, target)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            told = json.loads(done.stdout)
            self.assertEqual((told["files"], told["sealed"]), (5, "--sealed" in words))
            self.assertEqual(told["bytes"], sum(p.stat().st_size for p in self.source.rglob("*") if p.is_file()))
            self.assertIsNone(measure.same(self.source, target), words)

    def test_memory(self):
        told = json.loads(self.limit("--memory", "32M", "--sealed", "--streams", "2").stdout)
        self.assertEqual((told["bytes"], told["write"]), (32 << 20, "none"))

    def test_faults(self):
        """It ends at the first fault, and all of it."""
        full = WORK / "full"
        (full / "deep").mkdir(parents=True)
        for words in [[self.source, full], [self.source, WORK / "absent"], [WORK / "absent", full]]:
            done = self.limit(*words)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("limit: ", done.stderr)
        for words in [[], ["--piece", "3K", "a", "b"], ["--unit", "x", "a", "b"], ["--memory", "1G", "a", "b"]]:
            self.assertEqual(self.limit(*words).returncode, 2, words)


class Whole(unittest.TestCase):
    """The harness from its command line to its tables."""

    BENCH = [sys.executable, ROOT / "tests/bench/bench"]

    def bench(self, *words):
        return subprocess.run([*self.BENCH, *words], capture_output=True, text=True, check=False, timeout=90)

    def test_session(self):
        out = WORK / "out.jsonl"
        words = ["--quick", "--rounds", "2", "--rows", "small.tmpfs", "--tools", "cp,limit,penstock",
                 "--dest", WORK / "dest", "--out", out, "--build", LIMIT.parent.parent]
        with subprocess.Popen([*self.BENCH, *words], stdout=subprocess.DEVNULL) as session:
            self.assertEqual(session.wait(90), 0)
        found = record.read(out)
        alone = {one["row"]: one for one in found if one["against"] is None}
        for column in ("cp", "limit", "penstock"):
            self.assertEqual(len(alone[f"quick-small.tmpfs/{column}/files"]["samples"]), 2)
            self.assertGreater(alone[f"quick-small.tmpfs/{column}/cpu"]["min"], 0)
        self.assertGreater(alone["quick-small.tmpfs/penstock/resident"]["min"], 1)
        self.assertEqual(self.bench("--print", out).stdout.strip(), out.with_suffix(".txt").read_text().strip())
        self.assertEqual(len(self.bench("--print", out, "--csv").stdout.splitlines()), len(found) + 1)
        self.assertEqual(list(Path("/dev/shm").glob(f"penstock-bench.{session.pid}.*")), [])
        self.assertEqual(os.listdir(WORK / "dest"), [])

    def test_no_row(self):
        done = self.bench("--rows", "smal")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no row is named smal", done.stderr)


class Lines(unittest.TestResult):
    """A result line a case, as the runner wants it."""

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def name(self, test):
        words = test.id().split(".")
        return f"bench.{words[-2].lower()}.{words[-1].removeprefix('test_')}"

    def addSuccess(self, test):
        print(f"ok {self.name(test)} {time.monotonic() - self.began:.2f}")

    def wrong(self, test, err):
        print(self._exc_info_to_string(err, test), file=sys.stderr)
        print(f"not ok {self.name(test)} {' '.join(str(err[1]).split())[:300]}")

    addFailure = addError = wrong

    def addSubTest(self, test, subtest, err):
        raise NotImplementedError("no sub-tests here")


if __name__ == "__main__":
    unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__]).run(Lines())
