"""The commands of `arrester`, in the groups of its help; it imports none of them."""

from __future__ import annotations

#: By REST: group, name of the command, and the module with a function of that name.
REST_COMMANDS: dict[str, dict[str, str]] = {
    "See the state": {
        "status": "status",
        "apps": "lists",
        "pipelines": "lists",
        "tasks": "lists",
        "errors": "lists",
        "failures": "lists",
        "find": "lists",
        "commands": "lists",
        "alerts": "lists",
        "dead-letters": "dead_letters",
        "show": "show",
        "tail": "tail",
        "export": "tail",
        "doctor": "doctor",
    },
    "Act": {
        "resume": "task_commands",
        "skip": "task_commands",
        "edit": "task_commands",
        "pause": "task_commands",
        "restart": "task_commands",
        "cancel": "cancel",
        "shutdown": "application_commands",
        "start": "application_commands",
    },
    "Connect": {
        "login": "login",
        "token": "token",
        "agent": "agent",
        "completion": "completion",
    },
}
#: Commands of the server: Django runs them with the settings and the database of this machine.
SERVER_COMMANDS: dict[str, str] = {
    "up": "Run the product on this machine until Ctrl-C.",
    "migrate": "Create or upgrade the tables.",
    "bootstrap": "Create the first users.",
    "create_token": "Create a REST token of any account.",
    "open": "Register an application before its first start.",
    "demo": "Open the demo application again.",
    "wake": "Run the process that requests folds of new events.",
    "rebuild": "Derive the views from the log again, or compare them.",
    "retain": "Drop old days of the log.",
    "requeue": "Fold quarantined entries again, or dismiss them.",
    "audit": "Verify that no entry of the audit was changed or removed.",
    "erase": "Erase the body of a failed record from the log.",
}
MODULES = {name: module for group in REST_COMMANDS.values() for name, module in group.items()}


def is_for_rest(arguments: list[str]) -> bool:
    """Whether the arguments after `arrester` are for the commands by REST, or ask for the help."""
    if not arguments or arguments == ["help"]:
        return True
    return arguments[0].startswith("-") or arguments[0] in MODULES
