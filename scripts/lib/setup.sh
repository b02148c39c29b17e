# Sourced by the scripts beside it, in the project's root: finds a Python and sets up .venv.

# Prints "3.11" for a Python that runs, nothing for one that does not.
python_version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

die() {
    echo "draftmark: $*" >&2
    exit 1
}

# Sets `python`: the one of .venv, else the first of the right version that can make a .venv.
find_python() {
    local name version seen="" without_venv=""
    version=$(python_version .venv/bin/python)
    case $version in
        3.[0-9] | 3.10 | 2.*) die ".venv holds Python $version, 3.11 or later is needed: rm -r .venv, then again" ;;
        3.*) python=.venv/bin/python && return ;;
    esac
    # The machine's own python3 first; one newer than those tested only when there is no other.
    for name in python3 python3.13 python3.12 python3.11 python newer; do
        if [ "$name" = newer ]; then
            name=python3
            version=$(python_version "$name")
            case $version in 3.1[4-9] | 3.[2-9][0-9]) ;; *) continue ;; esac
            echo "draftmark: Python $version is newer than those it is tested with (3.11 to 3.13)"
        else
            version=$(python_version "$name")
            [ -n "$version" ] && seen="$seen $name=$version"
            case $version in 3.11 | 3.12 | 3.13) ;; *) continue ;; esac
        fi
        if "$name" -c 'import venv, ensurepip' 2>/dev/null; then
            python=$name && return
        fi
        without_venv=${without_venv:-$version}
    done
    [ -z "$without_venv" ] ||
        die "Python $without_venv has no venv module (on Debian or Ubuntu: apt-get install python$without_venv-venv)"
    die "Python 3.11, 3.12 or 3.13 is needed, found:${seen:- none}"
}

# set_up [--dev] [--model]
set_up() {
    find_python
    "$python" scripts/lib/install.py "$@" || exit
}
