#!/usr/bin/python3
"""A second implementation of the wire, written from proto/PROTOCOL.md and from nothing else.

    peer.py vectors [--check]               write tests/vectors/, or fail when it would change
    peer.py coordinate-and-send DIR PLACE   send the contents of DIR to a real agent
    peer.py receive PLACE DIR               receive the contents of PLACE from a real agent
    peer.py verify PLACE DIR                have a real agent compare PLACE with DIR
    peer.py hostile PLACE [CASE...]         break the protocol; fails unless the agent at PLACE refuses every case. Its root
                                            was made by `peer.py hostile --prepare ROOT`
"""
import argparse
import os
import sys

from peer import hostile, vectors
from peer.job import Settings
from peer.receive import Receiver
from peer.send import Sender
from peer.verify import Verifier


def settings_of(options):
    return Settings(program=options.program, key=options.key, streams=options.streams,
                    stripe_bytes=options.stripe << 20, segment_entries=options.segment_entries, sealed=not options.plain,
                    agent_dials=options.agent_dials,
                    cases={"changed": options.changed, "bad": options.bad, "breaks_at": options.breaks_at})


def send(options):
    Sender(options.dir, options.place, settings_of(options)).run()


def receive(options):
    Receiver(options.dir, options.place, settings_of(options)).run()


def verify(options):
    Verifier(options.place, settings_of(options)).run(options.dir)


def break_rules(options):
    return hostile.run(options, settings_of(options))


def parse():
    parser = argparse.ArgumentParser(description="A second implementation of the wire.")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("vectors")
    command.add_argument("--check", action="store_true")
    command.set_defaults(run=vectors.run)
    job = argparse.ArgumentParser(add_help=False)
    job.add_argument("--key", help="key file, for penstock://")
    job.add_argument("--program", default=os.environ.get("PENSTOCK", "penstock"), help="for a place without an agent")
    job.add_argument("--streams", type=int, default=2)
    job.add_argument("--stripe", type=int, default=1, help="MiB")
    job.add_argument("--segment-entries", type=int, default=100)
    job.add_argument("--plain", action="store_true", help="streams are not sealed")
    job.add_argument("--agent-dials", action="store_true", help="the agent dials this end")
    job.add_argument("--changed", action="append", default=[], metavar="PATH", help="seems changed when first read")
    job.add_argument("--bad", type=int, default=0, metavar="N", help="so many stripes are damaged")
    job.add_argument("--breaks-at", type=int, metavar="N", help="stream 0 is lost behind so many frames")
    place = "penstock://127.0.0.1:PORT/PATH, or a path for an agent of its own"
    command = commands.add_parser("coordinate-and-send", parents=[job])
    command.add_argument("dir")
    command.add_argument("place", help=place)
    command.set_defaults(run=send)
    command = commands.add_parser("receive", parents=[job])
    command.add_argument("place", help=place)
    command.add_argument("dir")
    command.set_defaults(run=receive)
    command = commands.add_parser("verify", parents=[job])
    command.add_argument("place", help=place)
    command.add_argument("dir")
    command.set_defaults(run=verify)
    command = commands.add_parser("hostile", parents=[job])
    command.add_argument("--list", action="store_true", help="print the names of the cases")
    command.add_argument("--prepare", action="store_true", help="PLACE is the folder that will be the agent's root")
    command.add_argument("--log", help="what the listener says: tells when a process died")
    command.add_argument("--jobs", type=int, default=6, help="cases at once")
    command.add_argument("place", nargs="?")
    command.add_argument("cases", nargs="*", metavar="CASE")
    command.set_defaults(run=break_rules)
    return parser.parse_args()


if __name__ == "__main__":
    chosen = parse()
    sys.exit(chosen.run(chosen))
