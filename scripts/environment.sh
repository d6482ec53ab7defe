# Makes a virtual environment and installs into it, only when something changed. Sourced.

say() {
    printf '\n== %s\n' "$*"
}

find_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
                >/dev/null 2>&1; then
            command -v "$name"
            return 0
        fi
    done
    echo "Python 3.11 or later with venv is needed; none was found on PATH." >&2
    return 4
}

# prepare FOLDER EXTRA CONSTRAINTS: an environment with this project and one extra of it.
# The stamp holds all that decides what is installed, so a second call takes no time.
prepare() {
    local folder=$1 extra=$2 constraints=$3 python wanted stamp
    python=$(find_python) || return
    wanted=$(
        printf '%s\n' "$PWD" "$extra"
        "$python" --version
        cat pyproject.toml "$constraints"
    )
    stamp="$folder/ready-$extra"
    if [ -x "$folder/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return 0
    fi
    say "installing .[$extra] into $folder (once)"
    [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
    rm -f "$stamp"
    "$folder/bin/python" -m pip install -qq --disable-pip-version-check --no-input \
        -c "$constraints" -e ".[$extra]"
    printf '%s\n' "$wanted" >"$stamp"
}
