#!/usr/bin/env bash
# Copies the bundle and the catalog with the released images, and with the sum of dormer-host.exe in the image:
# deploy/olm/release.sh FOLDER HOST_PROGRAM IMAGE@DIGEST [BUNDLE@DIGEST]
#
# In the repository both name registry.example and a digest of zeros. The bundle's image has to be pushed before anyone
# knows its digest, so release.sh runs twice: without it to build the bundle, and with it to build the catalog.
set -euo pipefail
usage="usage: deploy/olm/release.sh FOLDER HOST_PROGRAM IMAGE@sha256:DIGEST [BUNDLE@sha256:DIGEST]"
folder=${1:?$usage}
program=${2:?$usage}
image=${3:?$usage}
bundle=${4:-}
if [[ ! -f $program ]]; then
    echo "$program is no file; $usage" >&2
    exit 2
fi
for one in "$image" $bundle; do
    if [[ ! $one =~ ^[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}$ ]]; then
        echo "$one has no digest; $usage" >&2
        exit 2
    fi
done
zeros=$(printf '0%.0s' {1..64})
sum=$(sha256sum "$program" | cut -d' ' -f1)
mkdir -p "$folder"
cp -R "$(dirname "$0")/bundle" "$(dirname "$0")/catalog" "$folder/"
replace=(-e "s|registry.example/dormer@sha256:$zeros|$image|g" -e "s|--host-program-sha256=$zeros\$|--host-program-sha256=$sum|")
if [[ -n $bundle ]]; then
    replace+=(-e "s|registry.example/dormer-bundle@sha256:$zeros|$bundle|g")
else
    # A catalog with a bundle that nobody can pull is none.
    rm -r "$folder/catalog"
fi
find "$folder" -name '*.yaml' -exec sed -i "${replace[@]}" {} +
