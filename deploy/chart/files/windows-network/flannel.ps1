# flanneld on a Windows node, in a host-process container. The image has flanneld.exe in \flannel and the plugins in \cni.
$ErrorActionPreference = 'Stop'
$image = $env:CONTAINER_SANDBOX_MOUNT_POINT

Copy-Item -Force -Path "$image\cni\*.exe" -Destination $env:CNI_BIN

# containerd reads the file at any time, so it gets its name when it is whole.
$network = Get-Content -Raw -Path '/etc/kube-flannel/net-conf.json' | ConvertFrom-Json
$name = "flannel.$($network.Backend.VNI)"
$text = (Get-Content -Raw -Path '/etc/dormer-network/cni-conf.json').
    Replace('@NETWORK@', $name).
    Replace('@PODS@', $network.Network).
    Replace('@SERVICES@', $env:SERVICE_CIDR).
    Replace('@NODE_IP@', $env:NODE_IP)
$path = Join-Path $env:CNI_CONF '10-flannel.conf'
$there = if (Test-Path -LiteralPath $path) { Get-Content -Raw -Path $path } else { '' }
if ($there -ne $text) {
    Set-Content -NoNewline -Encoding ascii -Path "$path.new" -Value $text
    Move-Item -Force -Path "$path.new" -Destination $path
}

& "$image\flannel\flanneld.exe" --kube-subnet-mgr "--iface=$env:NODE_IP"
exit $LASTEXITCODE
