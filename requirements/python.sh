# Read by ./try and ./check, which stand one folder above: finds a Python that is new enough and sets up .venv with it.
# Takes the name of the set to install: run or check.
set -eu
python=
for name in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14 python3; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        python=$name
        break
    fi
done
if [ -z "$python" ]; then
    echo "prosa needs Python 3.11 or newer; none was found as python3. Another one: PYTHON=/path/to/python $0" >&2
    exit 1
fi
"$python" requirements/install.py "$set"
