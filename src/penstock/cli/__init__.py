"""The command line: `penstock COMMAND ...`.

    main.py      the entry: finds the command, turns errors into messages and exit codes
    parsing.py   how arguments are written: times, settings, options that all commands share
    terminal.py  what goes to standard output and standard error: tables, JSON, progress
    errors.py    what a command raises to end with a message
    opening.py   the log that a command works on
    forms.py     keys and values between bytes, text and JSON
    topics.py    topics list, create, describe, alter, delete, clean
    produce.py   records from standard input or a file to a topic
    lines.py     what `produce` reads: lines of text, lines of JSON
    consume.py   records of a topic to standard output
    sources.py   where `consume` reads: partitions of its own choice, or a place in a group
    shapes.py    what `consume` writes
    groups.py    groups list, describe, reset-offsets, delete
    run.py       runs a topology
    run_config.py  the configuration it runs with
    live.py      the line that shows how it goes
    describe.py  the description of a topology
    topologies.py  finds the topology that a text names

A command's module has one function, `add`, which adds it to the parser. A command itself is a
function of the arguments and the terminal; what it cannot do it raises.
"""
