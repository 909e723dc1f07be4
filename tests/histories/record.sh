#!/bin/sh
# Records histories of a demonstration with the dormer of $1 into the folder $2, for tests/replay.rs.
# Those of a released version are never made anew: they are what that version wrote.
set -eu
dormer=$1
folder=$2
mkdir -p "$folder"
work=$(mktemp -d)
trap 'kill "$demo" 2>/dev/null || true; rm -rf "$work"' EXIT
export DORMER_SERVER=http://127.0.0.1:17099

# Plays a demonstration with the options given, and waits until it is over and held.
play() {
    "$dormer" demo --hold --listen 127.0.0.1:17099 "$@" >"$work/log" 2>&1 &
    demo=$!
    until grep -qs 'The world goes on' "$work/log"; do
        kill -0 "$demo" || { cat "$work/log" >&2; exit 1; }
        sleep 1
    done
}

# Ends it.
end() {
    kill "$demo"
    wait "$demo" || true
}

# The first run that a filter on its story finds: $1 is a pattern that the history has, $2 one that it has not.
find_run() {
    for _ in $(seq 30); do
        for run in $("$dormer" get runs -o json | sed -n 's/.*"run": "\(machine[^"]*\)".*/\1/p'); do
            story=$("$dormer" history "$run")
            if printf "%s\n" "$story" | grep -q "$1" && ! printf "%s\n" "$story" | grep -q "$2"; then
                echo "$run"
                return
            fi
        done
        sleep 1
    done
    echo "no run of which $1 and not $2 is told" >&2
    exit 1
}

# A machine that is made, fails, is retried and is replaced; one that comes in its place; the rollout that orders it.
play --machines 2
"$dormer" history "$(find_run 'asked: retry' nothing)" --export "$folder/failure-and-retry.jsonl"
"$dormer" history "$(find_run 'Gone' 'asked: retry')" --export "$folder/upgrade-by-recreate.jsonl"
"$dormer" history "$(find_run 'Joined' 'Gone')" --export "$folder/bring-up.jsonl"
"$dormer" history rollout/windows --export "$folder/rollout-by-recreate.jsonl"
end

# A machine that is made and upgraded where it is.
play --machines 2 --strategy in-place --faults none
"$dormer" history "$(find_run 'Recreated' nothing)" --export "$folder/upgrade-in-place.jsonl"
"$dormer" history rollout/windows --export "$folder/rollout-in-place.jsonl"
end
