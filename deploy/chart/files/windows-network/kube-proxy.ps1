# kube-proxy on a Windows node, in a host-process container. The image has kube-proxy.exe in \kube-proxy.
$ErrorActionPreference = 'Stop'
$image = $env:CONTAINER_SANDBOX_MOUNT_POINT
# kube-proxy reads the name of its network from this variable, too.
$name = $env:KUBE_NETWORK

$network = Get-HnsNetwork | Where-Object { $_.Name -eq $name }
if (-not $network) { throw "there is no HNS network $name yet: flannel makes it" }

# An overlay network needs an address of the node's subnet from which services are reached. It is taken once, and again
# when the node got another subnet: a later one would leave rules of HNS with the earlier one.
$subnet = @($network.Subnets)[0].AddressPrefix
$folder = 'C:\var\lib\kube-proxy'
$kept = Join-Path $folder 'source-vip.json'
New-Item -Force -ItemType Directory -Path $folder | Out-Null
# Without the file, or with half of it, the address is taken again.
$vip = try { Get-Content -Raw -Path $kept | ConvertFrom-Json } catch { $null }
if (-not $vip -or $vip.subnet -ne $subnet) {
    $asked = @{
        cniVersion = '0.3.1'; name = $name
        ipam = @{ type = 'host-local'; ranges = @(, @(@{ subnet = $subnet })); dataDir = '/var/lib/cni/networks' }
    } | ConvertTo-Json -Depth 10
    $env:CNI_CONTAINERID = "kube-proxy-$($subnet.Replace('/', '-'))"
    $env:CNI_NETNS = 'none'
    $env:CNI_IFNAME = 'vip'
    $env:CNI_PATH = $env:CNI_BIN
    # host-local gives nobody a second address: one that was taken, but not written down, goes back first.
    $env:CNI_COMMAND = 'DEL'
    $said = $asked | & "$env:CNI_BIN\host-local.exe" | Out-String
    if ($LASTEXITCODE -ne 0) { throw "host-local takes no address of ${subnet} back: $said" }
    $env:CNI_COMMAND = 'ADD'
    $answer = $asked | & "$env:CNI_BIN\host-local.exe" | Out-String | ConvertFrom-Json
    if ($LASTEXITCODE -ne 0) { throw "host-local gives no address of ${subnet}: $($answer.msg)" }
    $vip = @{ subnet = $subnet; ip = $answer.ips[0].address.Split('/')[0] }
    $vip | ConvertTo-Json | Set-Content -Encoding ascii -Path $kept
}

& "$image\kube-proxy\kube-proxy.exe" --v=2 --proxy-mode=kernelspace "--hostname-override=$env:NODE_NAME" `
    "--cluster-cidr=$env:POD_CIDR" "--source-vip=$($vip.ip)" --healthz-bind-address=0.0.0.0:10256
exit $LASTEXITCODE
