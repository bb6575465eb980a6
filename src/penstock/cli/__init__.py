"""The command line: `penstock COMMAND ...`.

    main.py             the entry point: parses arguments, maps errors to messages and exit codes
    commands/           the commands, one module each
    parsing.py          argument types and shared options
    errors.py           errors that end a command
    terminal.py         standard output and standard error: tables, JSON, progress
    log_option.py       opens the log of `--log`
    codecs.py           keys and values between bytes, text and JSON
    line_reader.py      input of `produce`
    record_sources.py   input of `consume`
    formatters.py       output of `consume`
    topology_loader.py  finds the topology of `run` and `describe`
    environment.py      settings from environment variables
    run_config.py       configuration of `run`
    status_line.py      live status of `run`
    project.py          files of `new`, from `project_template/`

The function `add` of a command's module adds the command to the parser. A command is a function of
the parsed arguments and the terminal; it raises an exception if it fails.
"""
