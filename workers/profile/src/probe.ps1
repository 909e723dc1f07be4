# The built-in probe: reads facts, makes our folders for administrators only, changes nothing else.
# $t (task) and $n (attempt) stand on a line before this text.
Set-StrictMode -Version 2
$ProgressPreference='SilentlyContinue'
$ErrorActionPreference='Stop'
$r="$env:ProgramData\dormer"
foreach($d in 'bin','documents','staging'){[void][IO.Directory]::CreateDirectory("$r\$d")}
# SIDs of Administrators and SYSTEM: their names are translated on localised hosts.
[void](& "$env:SystemRoot\System32\icacls.exe" "$r" '/inheritance:r' '/grant:r' '*S-1-5-32-544:(OI)(CI)F' '*S-1-5-18:(OI)(CI)F')
if($LASTEXITCODE -ne 0){throw "icacls $LASTEXITCODE"}
$e=[DateTime]::SpecifyKind([DateTime]'1970-01-01','Utc')
$o=Get-CimInstance -ClassName Win32_OperatingSystem
$booted=[long]($o.LastBootUpTime.ToUniversalTime()-$e).TotalMilliseconds
# Windows' boot counter, which the kubelet reports too.
$k='HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters'
$b=(Get-Item -LiteralPath $k).GetValue('BootId')
if($null -eq $b){$b="t$([long]($booted/1000))"}
$s=@{0='unknown';1='enabled';2='disabled';3='disabled'}
$c=Get-CimInstance -ClassName Win32_OptionalFeature -Filter "Name='Containers'"
$a=@(Get-CimInstance -ClassName Win32_NetworkAdapterConfiguration -Filter 'IPEnabled=TRUE'|ForEach-Object{
$g=$null -ne $_.DefaultIPGateway
foreach($i in $_.IPAddress){if($i -match '^\d+\.'){@{interface=[int]$_.InterfaceIndex;ipv4=$i;default_route=$g}}}})
$p=@($a|Where-Object{$_.default_route})
$f=$null
if(Test-Path -LiteralPath "$r\fence.json"){$f=[IO.File]::ReadAllText("$r\fence.json")|ConvertFrom-Json}
$h=@(Get-ChildItem -LiteralPath "$r\bin" -Filter '*.ps1'|ForEach-Object{(Get-FileHash -LiteralPath $_.FullName).Hash.ToLowerInvariant()})
$x=@{os_build=$o.Version;product=$o.Caption;hostname=$env:COMPUTERNAME;boot_id="$b";booted_ms=$booted
now_ms=[long]([DateTime]::UtcNow-$e).TotalMilliseconds;shell="$($PSVersionTable.PSVersion)"
code_page=[Console]::OutputEncoding.CodePage;fence=$f;addresses=$a;scripts=$h
containers=$(if($c){$s[[int]$c.InstallState]}else{'unknown'})
reboot_pending=(Test-Path -LiteralPath 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending')
node_ip=$(if($p){$p[0].ipv4}else{$null});free_bytes=[long](Get-CimInstance -ClassName Win32_LogicalDisk -Filter "DeviceID='C:'").FreeSpace}
$j=ConvertTo-Json -Compress -Depth 5 @{schema=1;task=$t;attempt=$n;mode='probe';script='probe';facts=$x;reboot=@{state='none'}}
$z=[Convert]::ToBase64String([Text.Encoding]::UTF8.GetBytes($j))
$q=[BitConverter]::ToString((New-Object Security.Cryptography.SHA256CryptoServiceProvider).ComputeHash([Text.Encoding]::ASCII.GetBytes($z))).Replace('-','').ToLowerInvariant().Substring(0,8)
[Console]::Out.Write("`r`nDORMER1 $t $n $z $q`r`n")
