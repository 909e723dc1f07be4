#!/usr/bin/env bash
# Kills every process of dormer in turn with SIGKILL, every few seconds, while a simulated fleet comes up and while it
# is upgraded, and shows that it makes no difference:
#
#   tests/kill.sh                       50 machines, one kill every 4 seconds
#   MACHINES=4 SPEED=200 tests/kill.sh  a short one
#
# It starts a nats-server that syncs every write, `dormer fleet`, and dormer as separate processes with keys for messages and
# histories: one watcher, two engines, three workers, one approver, one console. It ends with 0 and a summary in one line if all machines carry the
# new version, never more than one node was away at once (by the fleet's own account), no host was changed twice for one
# task, and no process ended by itself; else with 1 and what went wrong. Everything it starts and writes is gone when it
# ends.
#
#   MACHINES  Windows machines (50)             SPEED     seconds of the fleet in one second (60)
#   EVERY     seconds between two kills (4)     STRATEGY  Recreate or InPlace (Recreate)
#   DEADLINE  seconds for all of it (1800)      KEEP      1: the folder with the logs stays
#   DORMER    the program (the newer of target/release/dormer and target/debug/dormer)
#   NATS      the server (the tests' own in the user's cache, else the one in PATH)
set -euo pipefail
cd "$(dirname "$0")/.."

MACHINES=${MACHINES:-50} SPEED=${SPEED:-60} EVERY=${EVERY:-4} STRATEGY=${STRATEGY:-Recreate} DEADLINE=${DEADLINE:-1800}
FIRST=11.0.0 SECOND=11.1.0
PROCESSES=(engine-1 worker-1 watcher worker-2 approver engine-2 console worker-3)

say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
give_up() { printf 'tests/kill.sh: %s\n' "$*" >&2; exit 1; }

# The newest file among those that are there and can be run.
newest() {
    local found='' file
    for file in "$@"; do
        if [[ -x $file && ( -z $found || $file -nt $found ) ]]; then found=$file; fi
    done
    printf '%s' "$found"
}

DORMER=${DORMER:-$(newest target/release/dormer target/debug/dormer)}
[[ -n $DORMER ]] || give_up "there is no dormer yet: cargo build --release"
CACHE=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/dormer/servers
NATS=${NATS:-$(find "$CACHE" -path '*/nats-server-*/nats-server' 2>/dev/null | sort -V | tail -n 1 || true)}
NATS=${NATS:-$(command -v nats-server || true)}
[[ -n $NATS ]] || give_up "there is no nats-server in $CACHE or in PATH: cargo tier servers"

folder=$(mktemp -d "${TMPDIR:-/tmp}/dormer-kill-XXXXXX")
declare -A pids=()
kills=0 failed=()

# Whatever way we end: nothing that we started goes on, nothing that we wrote stays.
clean_up() {
    local pid
    { for pid in "${pids[@]}"; do kill -KILL "$pid" || true; done; wait; } 2>/dev/null
    if [[ ${KEEP:-} == 1 ]]; then echo "The logs are in $folder"; else rm -rf "$folder"; fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# start NAME COMMAND...: in the background, with a log of its own.
start() {
    local name=$1
    shift
    "$@" >>"$folder/$name.log" 2>&1 </dev/null &
    pids[$name]=$!
}

alive() { kill -0 "${pids[$1]}" 2>/dev/null; }

# await SECONDS WHAT COMMAND...: until the command is true.
await() {
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        ((SECONDS < until)) || give_up "$what: not within the time"
        sleep 0.2
    done
}

# A port of the loopback address on which nobody listens.
free_port() {
    local port
    while port=$((20000 + RANDOM % 10000)); (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    printf '%s' "$port"
}

# found PATTERN FILES...: whether a file has it.
found() { grep -qs -e "$@"; }

start_nats() {
    cat >"$folder/nats.conf" <<CONF
host: 127.0.0.1
port: -1
http: "127.0.0.1:-1"
ports_file_dir: "$folder"
jetstream { store_dir: "$folder/jetstream", sync_interval: always }
CONF
    start nats "$NATS" -c "$folder/nats.conf"
    await 30 "nats-server" found '"monitoring"' -r --include='*.ports' "$folder"
    store=$(grep -oh 'nats://127.0.0.1:[0-9]*' "$folder"/*.ports)
    monitor=$(grep -oh 'http://127.0.0.1:[0-9]*' "$folder"/*.ports)
}

start_fleet() {
    cat >"$folder/pool.yaml" <<POOL
apiVersion: dormer.io/v1beta1
kind: WindowsPool
metadata: {name: windows, namespace: dormer}
spec: {strategy: {type: $STRATEGY, maxUnavailable: 1}, soak: 1s}
POOL
    start fleet "$DORMER" fleet --machines "$MACHINES" --speed "$SPEED" --payload "$folder/payloads" \
        --kubeconfig "$folder/kubeconfig" --manifest tests/fleet/manifests/aws-windows-machineset.yaml \
        --manifest "$folder/pool.yaml"
    await 60 "dormer fleet" found 'Ctrl-C ends it' "$folder/fleet.log"
}

# start_dormer NAME: the part of the name before the dash is the role.
start_dormer() {
    local name=$1 listen=127.0.0.1:0 history=()
    if [[ $name == console ]]; then listen=$console; fi
    if [[ $name == engine-* ]]; then history=(--history-keys "$folder/keys/history.keys"); fi
    start "$name" "$DORMER" run --role "${name%-*}" --name "$name" --kubeconfig "$folder/kubeconfig" \
        --store "$store" --nats-monitor "$monitor" --payload "$folder/payloads" --payload-unsigned --host-program "$folder/dormer-host.exe" \
        --ssh-port 2222 --listen "$listen" --nats-keys "$folder/keys" "${history[@]}"
}

kill_next() {
    local name=${PROCESSES[$((kills % ${#PROCESSES[@]}))]}
    if ! alive "$name"; then failed+=("$name ended by itself"); fi
    { kill -KILL "${pids[$name]}" || true; wait "${pids[$name]}" || true; } 2>/dev/null
    kills=$((kills + 1))
    start_dormer "$name"
}

machines() { "$DORMER" get machines --server "http://$console" "$@" 2>>"$folder/get.log"; }

# How many machines are Joined at a payload's version; 0 while the console is away.
joined_at() {
    machines -o json >"$folder/machines.json" || true
    awk -v version="\"version\": \"$1-" '
        /^  \{/ { joined = at = 0 }
        /^    "state": "Joined"/ { joined = 1 }
        index($0, "    " version) == 1 { at = 1 }
        /^  \}/ { n += joined && at }
        END { print n + 0 }' "$folder/machines.json"
}

# kill_until VERSION: one process after the other, until every machine is Joined at it.
kill_until() {
    local next=$((SECONDS + EVERY)) shown='' n
    while n=$(joined_at "$1"); ((n != MACHINES)); do
        if ((SECONDS >= DEADLINE)); then
            failed+=("$n of $MACHINES machines at $1 after $SECONDS s")
            return
        fi
        if ((SECONDS >= next)); then
            kill_next
            next=$((SECONDS + EVERY))
            if [[ $n != "$shown" ]]; then say "$n of $MACHINES at $1, $kills kills"; fi
            shown=$n
        fi
        sleep 0.5
    done
    say "all $MACHINES at $1, $kills kills"
}

# Every process is told to end in order, and does.
end_dormer() {
    local name status
    for name in "${PROCESSES[@]}"; do kill -TERM "${pids[$name]}" 2>/dev/null || true; done
    for name in "${PROCESSES[@]}"; do
        status=0
        wait "${pids[$name]}" || status=$?
        if ((status != 0)); then failed+=("$name ended with $status"); fi
        unset "pids[$name]"
    done
}

# The fleet's own account is the last line that it prints.
end_fleet() {
    kill -TERM "${pids[fleet]}"
    wait "${pids[fleet]}" || failed+=("dormer fleet failed")
    unset "pids[fleet]"
    account=$(tail -n 1 "$folder/fleet.log")
    away=$(grep -o '"max_unavailable_observed":[0-9]*' <<<"$account" | cut -d: -f2 || echo unknown)
}

judge() {
    local upgraded
    upgraded=$(grep -o "\"$SECOND-[^\"]*\":[0-9]*" <<<"$account" | sed 's/.*://' | paste -sd+ || true)
    ((${upgraded:-0} == MACHINES)) || failed+=("the fleet has $((${upgraded:-0})) nodes at $SECOND, not $MACHINES")
    [[ $away == 1 ]] || failed+=("$away nodes were away at once, not 1")
    [[ $account == *'"changed_twice":{}'* ]] || failed+=("hosts were changed twice for one task")
    [[ $account == *'"unknown_commands":0'* ]] || failed+=("hosts were sent commands that they do not know")
    if found 'a message is refused' "$folder"/*.log; then failed+=("a role refused a message of another"); fi
}

start_nats
start_fleet
"$DORMER" keys make --output "$folder/keys" >/dev/null || give_up "dormer keys make fails"
console=127.0.0.1:$(free_port)
for name in "${PROCESSES[@]}"; do start_dormer "$name"; done
say "$MACHINES machines, $SPEED times as fast as life; one of ${#PROCESSES[@]} processes is killed every $EVERY s"
kill_until "$FIRST"
bring_up=$SECONDS
if ((${#failed[@]} == 0)); then
    mv "$folder/payloads/later/$SECOND" "$folder/payloads/"
    say "the payload $SECOND is installed"
    kill_until "$SECOND"
fi

await 30 "the console" machines -o json >"$folder/machines.json"
one=$(sed -n 's/^    "name": "\(.*\)".*/\1/p' "$folder/machines.json" | head -n 1)
printf '\nThe history of %s:\n' "$one"
"$DORMER" history "$one" --server "http://$console" || failed+=("$one has no history to show")
if ((${#failed[@]} > 0)); then machines || true; fi
end_dormer
end_fleet
printf '\nThe fleet says: %s\n' "$account"
judge
if ((${#failed[@]} > 0)); then
    for name in "${PROCESSES[@]}"; do printf '\n%s:\n' "$name"; tail -n 15 "$folder/$name.log"; done
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
printf 'ok: %d machines up in %d s and upgraded in %d s, %d kills, at most %s away at once\n' \
    "$MACHINES" "$bring_up" "$((SECONDS - bring_up))" "$kills" "$away"
