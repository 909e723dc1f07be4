# The converge script: makes one Windows host what a document says, and answers in one line.
#
# It runs in Windows PowerShell 5.1, as an administrator, started by dormer over SSH:
#
#   powershell.exe -NoProfile -File converge-<hash>.ps1 -Mode apply -Task <id> ... -Document <path> -DocumentHash <hash>
#
# Modes: probe   reads facts and makes our folders
#        plan    compares the host with the document and changes nothing
#        apply   makes it so; stops at the first item that fails
#        remove  takes away what the document names, in reverse order
#        reboot  asks Windows for a reboot in five seconds
#        adopt   writes the fence (see below) and nothing else
#
# What it promises to whoever audits it:
# - It touches what the document names, and the folder C:\ProgramData\dormer. It fetches nothing from a network.
# - It runs once at a time (a mutex), and never on behalf of a task older than the newest one that changed this host
#   (the fence, fence.json). A command goes on when its SSH connection is lost, so both are needed.
# - It never reboots in the middle: it says that a reboot is needed, and mode reboot is a call of its own.
# - It decides by numbers (error codes, enumeration values), never by text, which Windows translates.
# - Whatever it is stopped in, running it again ends in the same state: files appear whole or not at all.
# - No secret is written to its answer.
param(
    [string]$Mode = '', [string]$Task = '', [int]$Attempt = 0, [long]$Generation = 0, [long]$Seq = 0,
    [string]$ScriptHash = '', [string]$BootId = '',
    [string]$Document = '', [string]$DocumentHash = '', [string]$DocumentText = ''
)
$ProgressPreference = 'SilentlyContinue'
$WarningPreference = 'SilentlyContinue'
$ErrorActionPreference = 'Stop'
Set-StrictMode -Version 2.0
# Windows PowerShell gives arrays a second Count, which ConvertTo-Json then writes in place of the array.
Remove-TypeData -TypeName System.Array -ErrorAction SilentlyContinue
Add-Type -AssemblyName System.Web.Extensions
Add-Type -AssemblyName System.ServiceProcess

$root = "$env:ProgramData\dormer"
$system = "$env:SystemRoot\System32"
$clock = [Diagnostics.Stopwatch]::StartNew()
$reader = New-Object -TypeName System.Web.Script.Serialization.JavaScriptSerializer
$reader.MaxJsonLength = [int]::MaxValue

# What this call has found so far. Functions change its entries, never the variable itself. Its lists are read by
# ToArray(): in Windows PowerShell @($list) fails on a list that New-Object made.
$run = @{
    apply = ($Mode -eq 'apply')
    bootId = ''
    outcomes = New-Object -TypeName 'System.Collections.Generic.List[object]'
    missing = New-Object -TypeName 'System.Collections.Generic.List[string]'
    reboot = New-Object -TypeName 'System.Collections.Generic.List[string]'
    rebootAsked = $false
    failure = $null
    log = $null
    mutex = $null
    entered = $false
    heard = $true
    signed = [Diagnostics.Stopwatch]::StartNew()
    roots = $null
}
# The friendly name of certificates that dormer put into the store.
$rootMark = 'dormer'

#region Failures and steps

# An exception that carries one of the failure codes of dormer's answers.
function New-Failure([string]$Code, [string]$Message) {
    $failure = New-Object -TypeName System.InvalidOperationException -ArgumentList $Message
    $failure.Data['code'] = $Code
    return $failure
}

# The innermost exception: PowerShell wraps what .NET throws.
function Get-Cause([Management.Automation.ErrorRecord]$Problem) {
    $cause = $Problem.Exception
    while ($null -ne $cause.InnerException) { $cause = $cause.InnerException }
    return $cause
}

# The failure code of any problem. The numbers are HRESULTs, 0x8007 and a Win32 error.
function Get-FailureCode([Management.Automation.ErrorRecord]$Problem) {
    $cause = Get-Cause $Problem
    if ($cause.Data.Contains('code')) { return $cause.Data['code'] }
    switch ($cause.HResult) {
        -2147024784 { return 'disk_full' }              # 112 ERROR_DISK_FULL
        -2147024857 { return 'disk_full' }              # 39  ERROR_HANDLE_DISK_FULL
        -2147024864 { return 'file_locked' }            # 32  ERROR_SHARING_VIOLATION
        -2147024863 { return 'file_locked' }            # 33  ERROR_LOCK_VIOLATION
        -2147023721 { return 'file_locked' }            # 1175 ERROR_UNABLE_TO_REMOVE_REPLACED
        -2147024891 { return 'access_denied' }          # 5   ERROR_ACCESS_DENIED
        -2147024671 { return 'quarantine_suspected' }   # 225 ERROR_VIRUS_INFECTED
    }
    return 'other'
}

# The Win32 error number in a problem, 0 if there is none.
function Get-Win32Number([Management.Automation.ErrorRecord]$Problem) {
    $cause = Get-Cause $Problem
    if ($cause -is [ComponentModel.Win32Exception]) { return $cause.NativeErrorCode }
    return 0
}

# Says that the call is alive: dormer ends one that says nothing for a minute. When the connection is lost nobody hears
# it, and the work goes on.
function Send-Sign([string]$Text) {
    if (-not $run.heard) { return }
    $run.signed.Reset()
    $run.signed.Start()
    try {
        [Console]::Out.Write("dormer: $Text`r`n")
        [Console]::Out.Flush()
    }
    catch { $run.heard = $false }
}

function Wait-Moment([int]$Milliseconds) {
    if ($run.signed.ElapsedMilliseconds -ge 10000) { Send-Sign 'working' }
    Start-Sleep -Milliseconds $Milliseconds
}

# Runs one command that may take minutes, and goes on giving signs of life meanwhile. It runs in this process: nothing
# is left behind when the call ends.
function Invoke-Slowly([string]$Command, [hashtable]$Parameters) {
    $shell = [PowerShell]::Create()
    try {
        [void]$shell.AddCommand($Command).AddParameters($Parameters)
        $running = $shell.BeginInvoke()
        while (-not $running.IsCompleted) { Wait-Moment 1000 }
        foreach ($result in $shell.EndInvoke($running)) { $result }
    }
    finally { $shell.Dispose() }
}

# What became of one item: ok, changed, differs, reboot (will be so after one) or missing (a file is not uploaded).
function New-Step([string]$State, [string]$Detail) {
    return @{ state = $State; detail = $Detail }
}

# Runs a program of Windows. Its text is not read: Windows translates it. Its exit code decides.
function Invoke-Native([string]$Program, [string[]]$Arguments, [int[]]$Good, [string]$Code) {
    [void](& "$Program" $Arguments)
    $number = $LASTEXITCODE
    if ($Good -notcontains $number) {
        throw (New-Failure $Code "$Program ended with $number")
    }
}

# Names that go into filters and registry paths.
function Assert-Name([string]$Name) {
    if ($Name -notmatch '^[A-Za-z0-9._-]{1,256}$') {
        throw (New-Failure 'document_rejected' "'$Name' is not a name")
    }
}

#endregion
#region Hashes, files, JSON

function ConvertTo-Hex([byte[]]$Bytes) {
    return [BitConverter]::ToString($Bytes).Replace('-', '').ToLowerInvariant()
}

# The provider of Windows itself: it is allowed where FIPS is enforced.
function New-Sha256 {
    return New-Object -TypeName System.Security.Cryptography.SHA256CryptoServiceProvider
}

function Get-BytesHash([byte[]]$Bytes) {
    $sha256 = New-Sha256
    try { return ConvertTo-Hex ($sha256.ComputeHash($Bytes)) } finally { $sha256.Dispose() }
}

function Open-ForReading([string]$Path) {
    $share = [IO.FileShare]::ReadWrite -bor [IO.FileShare]::Delete
    return New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'Read', $share
}

# SHA-256 of a file, empty if there is none. Works on programs that are running.
function Get-FileHashOrNothing([string]$Path) {
    if (-not [IO.File]::Exists($Path)) { return '' }
    $sha256 = New-Sha256
    $stream = Open-ForReading $Path
    try { return ConvertTo-Hex ($sha256.ComputeHash($stream)) }
    finally { $stream.Dispose(); $sha256.Dispose() }
}

# Reads JSON. Answers nothing if there is no such file; lists are unrolled, so callers that expect one use @(...).
function Read-JsonFile([string]$Path) {
    if (-not [IO.File]::Exists($Path)) { return }
    return $reader.DeserializeObject([IO.File]::ReadAllText($Path))
}

# Only Administrators and SYSTEM may read it. By SID: the names are translated.
function Set-Private([string]$Path) {
    $rules = New-Object -TypeName System.Security.AccessControl.FileSecurity
    $rules.SetAccessRuleProtection($true, $false)
    foreach ($sid in 'S-1-5-32-544', 'S-1-5-18') {
        $who = New-Object -TypeName System.Security.Principal.SecurityIdentifier -ArgumentList $sid
        $rule = New-Object -TypeName System.Security.AccessControl.FileSystemAccessRule `
            -ArgumentList $who, 'FullControl', 'Allow'
        $rules.AddAccessRule($rule)
    }
    [IO.File]::SetAccessControl($Path, $rules)
}

function Test-Private([string]$Path) {
    $rules = [IO.File]::GetAccessControl($Path)
    if (-not $rules.AreAccessRulesProtected) { return $false }
    $sids = [Security.Principal.SecurityIdentifier]
    foreach ($rule in $rules.GetAccessRules($true, $true, $sids)) {
        if ('S-1-5-32-544', 'S-1-5-18' -notcontains $rule.IdentityReference.Value) { return $false }
    }
    return $true
}

# Writes a stream to a new file, through to the disk, and answers the SHA-256 of what was written.
function Write-Stream([IO.Stream]$Source, [string]$Path, [bool]$Private) {
    [IO.File]::Create($Path).Dispose()
    if ($Private) { Set-Private $Path }
    $sha256 = New-Sha256
    $target = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Truncate', 'Write', 'None'
    try {
        $buffer = New-Object -TypeName 'byte[]' -ArgumentList 1048576
        $count = $Source.Read($buffer, 0, $buffer.Length)
        while ($count -gt 0) {
            $target.Write($buffer, 0, $count)
            [void]$sha256.TransformBlock($buffer, 0, $count, $buffer, 0)
            $count = $Source.Read($buffer, 0, $buffer.Length)
        }
        [void]$sha256.TransformFinalBlock($buffer, 0, 0)
        $target.Flush($true)
        return ConvertTo-Hex $sha256.Hash
    }
    finally { $target.Dispose(); $sha256.Dispose() }
}

# Waits until nobody has a file open. A service that has stopped can hold its program for seconds more.
function Wait-FileFree([string]$Path, [int]$Milliseconds) {
    if (-not [IO.File]::Exists($Path)) { return }
    [IO.File]::SetAttributes($Path, [IO.FileAttributes]::Normal)
    $waited = [Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        try {
            $stream = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'ReadWrite', 'None'
            $stream.Dispose()
            return
        }
        catch {
            if ((Get-FailureCode $_) -ne 'file_locked') { throw }
            if ($waited.ElapsedMilliseconds -ge $Milliseconds) {
                throw (New-Failure 'file_locked' "$Path is in use by another process")
            }
        }
        Wait-Moment 500
    }
}

# Puts content in its place in one step: whoever reads the path sees the old content or the new, never a part. What an
# interrupted call left beside it goes first; the mutex says that nobody else is writing it now.
function Install-Content([IO.Stream]$Source, [string]$Path, [string]$Sha256, [bool]$Private) {
    $folder = [IO.Path]::GetDirectoryName($Path)
    $name = [IO.Path]::GetFileName($Path)
    [void][IO.Directory]::CreateDirectory($folder)
    foreach ($left in [IO.Directory]::GetFiles($folder, "$name.dormer-*")) { [IO.File]::Delete($left) }
    $temporary = "$Path.dormer-" + [Guid]::NewGuid().ToString('N')
    try {
        $written = Write-Stream $Source $temporary $Private
        if (($Sha256 -ne '') -and ($written -ne $Sha256)) {
            throw (New-Failure 'hash_mismatch' "the content for $Path has the SHA-256 $written")
        }
        if ([IO.File]::Exists($Path)) {
            # The new content keeps the access rules of the old file, so those come first.
            if ($Private) { Set-Private $Path }
            [IO.File]::Replace($temporary, $Path, [NullString]::Value)
        }
        else { [IO.File]::Move($temporary, $Path) }
    }
    finally { if ([IO.File]::Exists($temporary)) { [IO.File]::Delete($temporary) } }
}

# UTF-8 without a byte-order mark: containerd and the kubelet do not start with one.
function Install-Text([string]$Path, [string]$Text) {
    $encoding = New-Object -TypeName System.Text.UTF8Encoding -ArgumentList $false
    $stream = New-Object -TypeName System.IO.MemoryStream -ArgumentList (, $encoding.GetBytes($Text))
    try { Install-Content $stream $Path '' $false } finally { $stream.Dispose() }
}

# What a function did not answer is a null in JSON, not the empty object that Windows PowerShell makes of it.
function Get-OrNull($Value) {
    if ($null -eq $Value) { return $null }
    return $Value
}

function Save-Json([string]$Path, $Value) {
    Install-Text $Path (ConvertTo-Json -InputObject $Value -Compress -Depth 5)
}

# The end of a log that a service may be writing: at most 40 lines and 4096 bytes.
function Get-LogTail([string]$Path) {
    if (($Path -eq '') -or -not [IO.File]::Exists($Path)) { return '' }
    try {
        $stream = Open-ForReading $Path
        try {
            $length = [int][Math]::Min([long]4096, $stream.Length)
            [void]$stream.Seek(-$length, [IO.SeekOrigin]::End)
            $buffer = New-Object -TypeName 'byte[]' -ArgumentList $length
            $count = $stream.Read($buffer, 0, $buffer.Length)
            $lines = @([Text.Encoding]::UTF8.GetString($buffer, 0, $count).Split([char]10))
            return (@($lines | Select-Object -Last 40) -join "`n").Trim()
        }
        finally { $stream.Dispose() }
    }
    catch { return "(the log could not be read: $($_.Exception.Message))" }
}

#endregion
#region Facts

function Get-RegistryValue([string]$Key, [string]$Name) {
    $opened = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($Key)
    if ($null -eq $opened) { return }
    try { return $opened.GetValue($Name) } finally { $opened.Dispose() }
}

function Set-RegistryValue([string]$Key, [string]$Name, $Value, [Microsoft.Win32.RegistryValueKind]$Kind) {
    $opened = [Microsoft.Win32.Registry]::LocalMachine.CreateSubKey($Key)
    try { $opened.SetValue($Name, $Value, $Kind) } finally { $opened.Dispose() }
}

function Remove-RegistryValue([string]$Key, [string]$Name) {
    $opened = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($Key, $true)
    if ($null -eq $opened) { return }
    try { $opened.DeleteValue($Name, $false) } finally { $opened.Dispose() }
}

function ConvertTo-UnixMs([DateTime]$Time) {
    $epoch = [DateTime]::SpecifyKind([DateTime]'1970-01-01', 'Utc')
    return [long]($Time.ToUniversalTime() - $epoch).TotalMilliseconds
}

# Windows counts its boots, and the kubelet reports the same number. Without it, the time of the boot has to do.
function Get-BootIdentity {
    $key = 'SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters'
    $number = Get-RegistryValue $key 'BootId'
    if ($null -ne $number) { return "$number" }
    $booted = (Get-CimInstance -ClassName Win32_OperatingSystem).LastBootUpTime
    return 't' + [long]((ConvertTo-UnixMs $booted) / 1000)
}

# The computer name now, and the one after the next reboot.
function Get-ComputerNames {
    $key = 'SYSTEM\CurrentControlSet\Control\ComputerName'
    return @{
        active = [string](Get-RegistryValue "$key\ActiveComputerName" 'ComputerName')
        next = [string](Get-RegistryValue "$key\ComputerName" 'ComputerName')
    }
}

# State of a feature: unknown, disabled, pending or enabled. The quick question comes first; the slow one (DISM) only
# where the answer is not a plain yes, or Windows has a servicing operation open. Its states are the names of an
# enumeration, which Windows does not translate.
function Get-FeatureState([string]$Name) {
    Assert-Name $Name
    $feature = @(Get-CimInstance -ClassName Win32_OptionalFeature -Filter "Name='$Name'")
    if ($feature.Count -eq 0) { return 'unknown' }
    if (($feature[0].InstallState -eq 1) -and -not (Test-ServicingReboot)) { return 'enabled' }
    $state = (Get-WindowsOptionalFeature -Online -FeatureName $Name).State.ToString()
    if ($state -eq 'Enabled') { return 'enabled' }
    if ($state -eq 'EnablePending') { return 'pending' }
    return 'disabled'
}

function Test-ServicingReboot {
    return Test-Path -LiteralPath `
        'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending'
}

function Test-Defender {
    return @(Get-Process -Name 'MsMpEng' -ErrorAction SilentlyContinue).Count -gt 0
}

# IPv4 addresses, those of interfaces with a default route first, the cheapest of them before the others.
function Get-Addresses {
    $found = New-Object -TypeName 'System.Collections.Generic.List[object]'
    $adapters = @(Get-CimInstance -ClassName Win32_NetworkAdapterConfiguration -Filter 'IPEnabled=TRUE')
    $order = @{ Expression = { $null -eq $_.DefaultIPGateway } }, 'IPConnectionMetric'
    foreach ($adapter in @($adapters | Sort-Object -Property $order)) {
        $default = ($null -ne $adapter.DefaultIPGateway)
        foreach ($address in @($adapter.IPAddress)) {
            if ($address -notmatch '^\d+\.\d+\.\d+\.\d+$') { continue }
            if ($address.StartsWith('169.254.')) { continue }
            $entry = @{ interface = [int]$adapter.InterfaceIndex; ipv4 = $address; default_route = $default }
            $found.Add($entry)
        }
    }
    return $found.ToArray()
}

function Get-FullName([string]$HostName) {
    $key = 'SYSTEM\CurrentControlSet\Services\Tcpip\Parameters'
    foreach ($name in 'Domain', 'DhcpDomain') {
        $domain = [string](Get-RegistryValue $key $name)
        if ($domain -ne '') { return ("$HostName.$domain").ToLowerInvariant() }
    }
}

function Get-ServiceProcess([string]$Name) {
    Assert-Name $Name
    $service = @(Get-CimInstance -ClassName Win32_Service -Filter "Name='$Name'")
    if ($service.Count -eq 0) { return 0 }
    return [int]$service[0].ProcessId
}

# Reboots that items of this boot wait for. Written down, because what waits for a reboot may look right already.
function Get-WaitingForReboot {
    $noted = Read-JsonFile "$root\reboot.json"
    if (($null -eq $noted) -or ($noted['boot_id'] -ne $run.bootId)) { return }
    return @($noted['items'])
}

function Get-Facts {
    $windows = Get-CimInstance -ClassName Win32_OperatingSystem
    $names = Get-ComputerNames
    $addresses = @(Get-Addresses)
    $default = @($addresses | Where-Object { $_.default_route })
    $disk = Get-CimInstance -ClassName Win32_LogicalDisk -Filter "DeviceID='C:'"
    $shell = [string](Get-RegistryValue 'SOFTWARE\OpenSSH' 'DefaultShell')
    $scripts = @(Get-ChildItem -LiteralPath "$root\bin" -Filter '*.ps1' |
            ForEach-Object { Get-FileHashOrNothing $_.FullName })
    return @{
        os_build = $windows.Version
        product = $windows.Caption
        hostname = $names.active
        hostname_pending = $(if ($names.active -ne $names.next) { $names.next } else { $null })
        fqdn = Get-OrNull (Get-FullName $names.active)
        boot_id = $run.bootId
        booted_ms = ConvertTo-UnixMs $windows.LastBootUpTime
        now_ms = ConvertTo-UnixMs ([DateTime]::UtcNow)
        shell = $PSVersionTable.PSVersion.ToString()
        code_page = [Console]::OutputEncoding.CodePage
        default_shell = $(if ($shell -ne '') { $shell } else { $null })
        installed = @(Read-JsonFile "$root\installed.json")
        fence = Get-OrNull (Read-JsonFile "$root\fence.json")
        containers = Get-FeatureState 'Containers'
        reboot_pending = ((Test-ServicingReboot) -or ($names.active -ne $names.next))
        addresses = $addresses
        node_ip = $(if ($default.Count -gt 0) { $default[0].ipv4 } else { $null })
        free_bytes = [long]$disk.FreeSpace
        defender = Test-Defender
        scripts = $scripts
        last = Get-OrNull (Read-JsonFile "$root\last.json")
        hns_pid = Get-ServiceProcess 'hns'
    }
}

# What the answer says when even the facts cannot be read.
function Get-NoFacts {
    return @{
        os_build = ''; product = ''; hostname = "$env:COMPUTERNAME"; boot_id = $run.bootId; booted_ms = 0
        now_ms = ConvertTo-UnixMs ([DateTime]::UtcNow); shell = $PSVersionTable.PSVersion.ToString()
        code_page = 0; containers = 'unknown'; reboot_pending = $false; free_bytes = 0
    }
}

#endregion
#region Guards: our folders, the script itself, mutex, boot, fence

function Initialize-Folders {
    $new = -not [IO.Directory]::Exists($root)
    foreach ($name in 'bin', 'documents', 'staging') { [void][IO.Directory]::CreateDirectory("$root\$name") }
    if ($new) {
        $rules = '/inheritance:r', '/grant:r', '*S-1-5-32-544:(OI)(CI)F', '*S-1-5-18:(OI)(CI)F'
        Invoke-Native "$system\icacls.exe" (@($root) + $rules) @(0) 'access_denied'
    }
}

function Assert-Script {
    if ((Get-FileHashOrNothing $PSCommandPath) -ne $ScriptHash) {
        throw (New-Failure 'document_rejected' "$PSCommandPath is not the script that was meant")
    }
}

# Every administrator may take the mutex, whoever made it.
function New-HostMutex {
    $admins = New-Object -TypeName System.Security.Principal.SecurityIdentifier -ArgumentList 'S-1-5-32-544'
    $rule = New-Object -TypeName System.Security.AccessControl.MutexAccessRule `
        -ArgumentList $admins, 'FullControl', 'Allow'
    $rules = New-Object -TypeName System.Security.AccessControl.MutexSecurity
    $rules.AddAccessRule($rule)
    $made = $false
    return New-Object -TypeName System.Threading.Mutex `
        -ArgumentList $false, 'Global\dormer-converge', ([ref]$made), $rules
}

function Enter-Mutex([Threading.Mutex]$Mutex) {
    try { $mine = $Mutex.WaitOne(10000) }
    catch {
        # A call that was killed left it; what it did half is what this call looks at.
        if ((Get-Cause $_) -isnot [Threading.AbandonedMutexException]) { throw }
        $mine = $true
    }
    if (-not $mine) { throw (New-Failure 'host_busy' 'another call holds the mutex') }
}

function Assert-Boot {
    if (($BootId -ne '') -and ($BootId -ne $run.bootId)) {
        throw (New-Failure 'boot_changed' "boot $($run.bootId), expected $BootId")
    }
}

# An older task than the newest that changed this host ends here; an equal one is a repeat.
function Update-Fence {
    $path = "$root\fence.json"
    $fence = Read-JsonFile $path
    if ($null -ne $fence) {
        $newer = ([long]$fence['generation'] -gt $Generation) -or
            (([long]$fence['generation'] -eq $Generation) -and ([long]$fence['seq'] -gt $Seq))
        if ($newer) {
            throw (New-Failure 'fence_too_old' "the fence is $($fence['generation']).$($fence['seq'])")
        }
    }
    Save-Json $path @{ generation = $Generation; seq = $Seq }
}

# The document: from its file, whose hash must be the one that was meant, or from the command line itself.
function Read-Document {
    if ($DocumentText -ne '') {
        $base64 = $DocumentText.Replace('-', '+').Replace('_', '/')
        $base64 = $base64.PadRight([int]([Math]::Ceiling($base64.Length / 4) * 4), '=')
        $text = [Text.Encoding]::UTF8.GetString([Convert]::FromBase64String($base64))
    }
    else {
        if ((Get-FileHashOrNothing $Document) -ne $DocumentHash) {
            throw (New-Failure 'document_rejected' "$Document is not there, or not the document that was meant")
        }
        $text = [IO.File]::ReadAllText($Document)
    }
    $read = $reader.DeserializeObject($text)
    if ($read['schema'] -ne 1) {
        throw (New-Failure 'document_rejected' "the document has the schema $($read['schema'])")
    }
    return $read
}

#endregion
#region Items: files and settings of Windows

function Set-DirectoryItem($Item) {
    if ([IO.Directory]::Exists($Item['path'])) { return New-Step 'ok' '' }
    if (-not $run.apply) { return New-Step 'differs' 'is not there' }
    [void][IO.Directory]::CreateDirectory($Item['path'])
    return New-Step 'changed' 'made'
}

# The uploaded content of a file: as it is, or gzip-compressed. Nothing if it was not uploaded.
function Get-StagedPath([string]$Name) {
    foreach ($path in "$root\staging\$Name", "$root\staging\$Name.gz") {
        if ([IO.File]::Exists($path)) { return $path }
    }
}

function Open-Staged([string]$Path) {
    $stream = Open-ForReading $Path
    if (-not $Path.EndsWith('.gz')) { return $stream }
    $unpack = [IO.Compression.CompressionMode]::Decompress
    return New-Object -TypeName System.IO.Compression.GZipStream -ArgumentList $stream, $unpack
}

function Set-FileItem($Item) {
    $path = $Item['path']
    $right = (Get-FileHashOrNothing $path) -eq $Item['sha256']
    if ($right -and $Item['private']) { $right = Test-Private $path }
    if ($right) { return New-Step 'ok' '' }
    $inline = ($Item['source']['from'] -eq 'inline')
    $staged = $null
    if (-not $inline) {
        $staged = Get-StagedPath $Item['source']['name']
        if ($null -eq $staged) { return New-Step 'missing' $path }
    }
    if (-not $run.apply) { return New-Step 'differs' 'differs' }
    foreach ($user in @($Item['users'])) { Stop-ServiceAndWait $user }
    Wait-FileFree $path 30000
    if ($inline) {
        $bytes = [Convert]::FromBase64String($Item['source']['base64'])
        $stream = New-Object -TypeName System.IO.MemoryStream -ArgumentList (, $bytes)
    }
    else { $stream = Open-Staged $staged }
    try { Install-Content $stream $path $Item['sha256'] $Item['private'] }
    catch {
        # A damaged upload is no use to the next attempt; what cannot be unpacked is damaged, too.
        $stream.Dispose()
        $unreadable = ((Get-Cause $_) -is [IO.InvalidDataException])
        if (-not $inline -and ($unreadable -or ((Get-FailureCode $_) -eq 'hash_mismatch'))) {
            [IO.File]::Delete($staged)
        }
        if ($unreadable) { throw (New-Failure 'hash_mismatch' "$staged is no whole gzip file") }
        throw
    }
    $stream.Dispose()
    if (-not $inline) { [IO.File]::Delete($staged) }
    return New-Step 'changed' 'written'
}

function Set-FeatureItem($Item) {
    $name = $Item['name']
    $state = Get-FeatureState $name
    if ($state -eq 'enabled') { return New-Step 'ok' '' }
    if ($state -eq 'pending') { return New-Step 'reboot' 'waits for a reboot' }
    if (-not $run.apply) { return New-Step 'differs' 'is not enabled' }
    try {
        # Windows Server knows the first command, other editions of Windows the second.
        if ($null -ne (Get-Command -Name 'Install-WindowsFeature' -ErrorAction SilentlyContinue)) {
            $done = Invoke-Slowly 'Install-WindowsFeature' @{ Name = $name; ErrorAction = 'Stop' }
            if (-not $done.Success) { throw (New-Failure 'feature_install_failed' "$($done.ExitCode)") }
        }
        else {
            $all = @{ Online = $true; FeatureName = $name; All = $true; NoRestart = $true; ErrorAction = 'Stop' }
            [void](Invoke-Slowly 'Enable-WindowsOptionalFeature' $all)
        }
    }
    catch { throw (New-Failure 'feature_install_failed' (Get-Cause $_).Message) }
    if ((Get-FeatureState $name) -eq 'enabled') { return New-Step 'changed' 'enabled' }
    return New-Step 'reboot' 'installed, waits for a reboot'
}

function Set-HostnameItem($Item) {
    $name = $Item['name']
    $names = Get-ComputerNames
    if (($names.active -eq $name) -and ($names.next -eq $name)) { return New-Step 'ok' '' }
    if ($names.next -eq $name) { return New-Step 'reboot' 'waits for a reboot' }
    if (-not $run.apply) { return New-Step 'differs' "is $($names.active)" }
    if ($name.Length -gt 15) { throw (New-Failure 'hostname_failed' "$name is longer than 15 characters") }
    try { Rename-Computer -NewName $name -Force }
    catch { throw (New-Failure 'hostname_failed' (Get-Cause $_).Message) }
    return New-Step 'reboot' 'renamed'
}

function Set-EnvironmentItem($Item) {
    $wanted = [string]$Item['value']
    $found = [string][Environment]::GetEnvironmentVariable($Item['name'], 'Machine')
    if ($found -ceq $wanted) {
        if ($Item['reboot'] -and (@(Get-WaitingForReboot) -contains $Item['id'])) {
            return New-Step 'reboot' 'waits for a reboot'
        }
        return New-Step 'ok' ''
    }
    if (-not $run.apply) { return New-Step 'differs' 'differs' }
    if ($Item['reboot']) { Save-WaitingForReboot $Item['id'] }
    # An empty value removes the variable.
    [Environment]::SetEnvironmentVariable($Item['name'], $wanted, 'Machine')
    if ($Item['reboot']) { return New-Step 'reboot' 'set' }
    return New-Step 'changed' 'set'
}

# The type of a value in the registry, as .NET names it.
function Get-RegistryKind([string]$Type) {
    switch ($Type) {
        'dword' { return 'DWord' }
        'qword' { return 'QWord' }
        'text' { return 'String' }
        'expand' { return 'ExpandString' }
        'texts' { return 'MultiString' }
    }
    throw (New-Failure 'document_rejected' "this script knows no value of type '$Type'")
}

# Whether a card has a gateway and no DHCP.
function Test-StaticAddress {
    $under = 'SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces'
    $cards = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($under)
    if ($null -eq $cards) { return $false }
    try {
        foreach ($name in $cards.GetSubKeyNames()) {
            $card = $cards.OpenSubKey($name)
            if ($null -eq $card) { continue }
            try {
                $gateways = @(@($card.GetValue('DefaultGateway')) | Where-Object { $_ })
                if ($gateways.Count -gt 0 -and $card.GetValue('EnableDHCP') -eq 0) { return $true }
            }
            finally { $card.Dispose() }
        }
    }
    finally { $cards.Dispose() }
    return $false
}

function Set-RegistryItem($Item) {
    $builds = @($Item['windows_builds'] | Where-Object { $_ })
    $build = (Get-CimInstance -ClassName Win32_OperatingSystem).Version
    if ($builds.Count -gt 0 -and $builds -notcontains $build) { return New-Step 'ok' 'for other hosts' }
    if ($Item['static_address'] -and -not (Test-StaticAddress)) { return New-Step 'ok' 'for other hosts' }
    $kind = Get-RegistryKind $Item['value']['type']
    $wanted = @($Item['value']['data'])
    $opened = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($Item['key'])
    if ($null -ne $opened) {
        try {
            $found = $opened.GetValue($Item['name'], $null, 'DoNotExpandEnvironmentNames')
            $same = $null -ne $found -and ($opened.GetValueKind($Item['name']) -eq $kind)
            # Numbers come back signed.
            if ($same -and $kind -eq 'DWord') { $found = [BitConverter]::ToUInt32([BitConverter]::GetBytes([int]$found), 0) }
            if ($same -and $kind -eq 'QWord') { $found = [BitConverter]::ToUInt64([BitConverter]::GetBytes([long]$found), 0) }
            if ($same -and (($found -join "`n") -ceq ($wanted -join "`n"))) { return New-Step 'ok' '' }
        }
        finally { $opened.Dispose() }
    }
    if (-not $run.apply) { return New-Step 'differs' 'another value' }
    $value = $Item['value']['data']
    if ($kind -eq 'DWord') { $value = [BitConverter]::ToInt32([BitConverter]::GetBytes([uint32]$value), 0) }
    if ($kind -eq 'QWord') { $value = [BitConverter]::ToInt64([BitConverter]::GetBytes([uint64]$value), 0) }
    if ($kind -eq 'MultiString') { $value = [string[]]$wanted }
    Set-RegistryValue $Item['key'] $Item['name'] $value $kind
    return New-Step 'changed' 'set'
}

# Written before the change: a call that dies in between asks for one reboot too many, never for one too few.
function Save-WaitingForReboot([string]$Id) {
    $items = @(Get-WaitingForReboot) + $Id | Select-Object -Unique
    Save-Json "$root\reboot.json" @{ boot_id = $run.bootId; items = @($items) }
}

function Open-RootStore {
    $store = New-Object -TypeName System.Security.Cryptography.X509Certificates.X509Store `
        -ArgumentList 'Root', 'LocalMachine'
    $store.Open([Security.Cryptography.X509Certificates.OpenFlags]::ReadWrite)
    return $store
}

function Find-Certificate($Store, [string]$Sha256) {
    foreach ($certificate in $Store.Certificates) {
        if ((Get-BytesHash $certificate.RawData) -eq $Sha256) { return $certificate }
    }
}

# The hashes of what is in the store, read once a call: a bundle may have more than a hundred certificates.
function Get-RootHashes($Store) {
    if ($null -eq $run.roots) {
        $run.roots = @{}
        foreach ($certificate in $Store.Certificates) { $run.roots[(Get-BytesHash $certificate.RawData)] = $true }
    }
    return $run.roots
}

function Set-CertificateItem($Item) {
    try {
        $store = Open-RootStore
        try {
            $there = Get-RootHashes $store
            if ($there.ContainsKey($Item['sha256'])) { return New-Step 'ok' '' }
            if (-not $run.apply) { return New-Step 'differs' 'is not there' }
            $bytes = [Convert]::FromBase64String($Item['base64'])
            $certificate = New-Object `
                -TypeName System.Security.Cryptography.X509Certificates.X509Certificate2 -ArgumentList (, $bytes)
            # The store keeps the name: by it a certificate of ours is known later.
            $certificate.FriendlyName = $rootMark
            $store.Add($certificate)
            $there[$Item['sha256']] = $true
            return New-Step 'changed' 'imported'
        }
        finally { $store.Close() }
    }
    catch { throw (New-Failure 'certificate_failed' (Get-Cause $_).Message) }
}

# Certificates of ours that are asked for no more go; those that somebody else put into the store stay.
function Clear-OldCertificates([string[]]$Keep) {
    try {
        $store = Open-RootStore
        try {
            $old = @(foreach ($certificate in $store.Certificates) {
                if (($certificate.FriendlyName -eq $rootMark) -and
                    ($Keep -notcontains (Get-BytesHash $certificate.RawData))) { $certificate }
            })
            if ($run.apply) { foreach ($certificate in $old) { $store.Remove($certificate) } }
            return $old.Count
        }
        finally { $store.Close() }
    }
    catch { throw (New-Failure 'certificate_failed' (Get-Cause $_).Message) }
}

function Set-OnlyCertificatesItem($Item) {
    $old = Clear-OldCertificates @($Item['keep'])
    if ($old -eq 0) { return New-Step 'ok' '' }
    if (-not $run.apply) { return New-Step 'differs' "$old too many" }
    return New-Step 'changed' "$old removed"
}

function Set-OnlyFoldersItem($Item) {
    if (-not [IO.Directory]::Exists($Item['under'])) { return New-Step 'ok' '' }
    $old = @(foreach ($folder in [IO.Directory]::GetDirectories($Item['under'])) {
        if (@($Item['keep']) -notcontains [IO.Path]::GetFileName($folder)) { $folder }
    })
    if ($old.Count -eq 0) { return New-Step 'ok' '' }
    if (-not $run.apply) { return New-Step 'differs' ($old -join ', ') }
    foreach ($folder in $old) { Remove-Tree $folder }
    return New-Step 'changed' ($old -join ', ')
}

# The firewall by its COM interface: quick, and all numbers. Protocol 6 is TCP, 17 is UDP; direction 1 is inbound,
# action 1 is allow, and 2147483647 is every profile.
function Get-FirewallRule($Rules, [string]$Name) {
    foreach ($rule in $Rules) { if ($rule.Name -eq $Name) { return $rule } }
}

function Set-FirewallItem($Item) {
    $protocol = $(if ($Item['protocol'] -eq 'udp') { 17 } else { 6 })
    try {
        $policy = New-Object -ComObject HNetCfg.FwPolicy2
        $rule = Get-FirewallRule $policy.Rules $Item['name']
        if (($null -ne $rule) -and $rule.Enabled -and ($rule.Direction -eq 1) -and ($rule.Action -eq 1) -and
            ($rule.Protocol -eq $protocol) -and ($rule.LocalPorts -eq "$($Item['port'])") -and
            ($rule.Profiles -eq 2147483647)) {
            return New-Step 'ok' ''
        }
        if (-not $run.apply) { return New-Step 'differs' 'is not there, or is another' }
        if ($null -ne $rule) { [void]$policy.Rules.Remove($Item['name']) }
        $rule = New-Object -ComObject HNetCfg.FWRule
        $rule.Name = $Item['name']
        $rule.Description = 'Made by dormer for a Kubernetes node'
        $rule.Protocol = $protocol
        $rule.LocalPorts = "$($Item['port'])"
        $rule.Direction = 1
        $rule.Action = 1
        $rule.Profiles = 2147483647
        $rule.Enabled = $true
        [void]$policy.Rules.Add($rule)
        return New-Step 'changed' 'set'
    }
    catch { throw (New-Failure 'firewall_failed' (Get-Cause $_).Message) }
}

function Set-DefenderExclusionItem($Item) {
    if (-not (Test-Defender)) { return New-Step 'ok' '' }
    try {
        if (@((Get-MpPreference).ExclusionProcess) -contains $Item['process']) { return New-Step 'ok' '' }
        if (-not $run.apply) { return New-Step 'differs' 'is not excluded' }
        Add-MpPreference -ExclusionProcess $Item['process']
    }
    catch { throw (New-Failure 'defender_failed' (Get-Cause $_).Message) }
    return New-Step 'changed' 'excluded'
}

# Folders of payloads that are neither in use nor kept for a way back. Only those with our mark, and what a process
# still holds stays for the next time.
function Set-SweepItem($Item) {
    if (-not [IO.Directory]::Exists($Item['under'])) { return New-Step 'ok' '' }
    $old = New-Object -TypeName 'System.Collections.Generic.List[string]'
    foreach ($folder in [IO.Directory]::GetDirectories($Item['under'])) {
        $kept = @($Item['keep']) -contains [IO.Path]::GetFileName($folder)
        $ours = [IO.File]::Exists("$folder\.dormer-version") -or $folder.EndsWith('.dormer-old')
        if ($ours -and -not $kept) { $old.Add($folder) }
    }
    if ($old.Count -eq 0) { return New-Step 'ok' '' }
    if (-not $run.apply) { return New-Step 'differs' ($old.ToArray() -join ', ') }
    $gone = New-Object -TypeName 'System.Collections.Generic.List[string]'
    foreach ($folder in $old) {
        # A folder whose programs still run cannot be renamed, and so is left whole.
        $aside = $folder
        try {
            if (-not $folder.EndsWith('.dormer-old')) {
                $aside = "$folder.dormer-old"
                [IO.Directory]::Move($folder, $aside)
            }
            Remove-Tree $aside
            $gone.Add($folder)
        }
        catch { continue }
    }
    if ($gone.Count -eq 0) { return New-Step 'ok' 'old folders are still in use' }
    return New-Step 'changed' ($gone.ToArray() -join ', ')
}

function Remove-Tree([string]$Path) {
    foreach ($file in [IO.Directory]::GetFiles($Path, '*', 'AllDirectories')) {
        [IO.File]::SetAttributes($file, [IO.FileAttributes]::Normal)
    }
    [IO.Directory]::Delete($Path, $true)
}

#endregion
#region Items: services

# What Windows keeps about a service; nothing if there is no such service.
function Get-ServiceSettings([string]$Name) {
    Assert-Name $Name
    $key = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey("SYSTEM\CurrentControlSet\Services\$Name")
    if ($null -eq $key) { return }
    try {
        return @{
            command = [string]$key.GetValue('ImagePath', '', 'DoNotExpandEnvironmentNames')
            display = [string]$key.GetValue('DisplayName', '')
            description = [string]$key.GetValue('Description', '')
            depends = @($key.GetValue('DependOnService')) -join '/'
            start = [int]$key.GetValue('Start', -1)
            failure = ConvertFrom-FailureActions ($key.GetValue('FailureActions'))
            environment = @($key.GetValue('Environment')) -join "`n"
        }
    }
    finally { $key.Dispose() }
}

# SERVICE_FAILURE_ACTIONS as the registry holds it: seconds at 0, count at 12, offset of the actions at 16; each action
# is a type (1: restart) and a delay in milliseconds.
function ConvertFrom-FailureActions($Bytes) {
    if (($null -eq $Bytes) -or ($Bytes.Length -lt 20)) { return '' }
    $count = [BitConverter]::ToUInt32($Bytes, 12)
    if ($count -eq 0) { return '' }
    $at = [BitConverter]::ToUInt32($Bytes, 16)
    $text = 'reset ' + [BitConverter]::ToUInt32($Bytes, 0)
    for ($n = 0; ($n -lt $count) -and ($at + 8 -le $Bytes.Length); $n++) {
        $text += ' ' + [BitConverter]::ToUInt32($Bytes, $at) + '/' + [BitConverter]::ToUInt32($Bytes, $at + 4)
        $at += 8
    }
    return $text
}

# The settings that a service item asks for, in the same words.
function Get-WantedSettings($Item) {
    $delays = @($Item['failure']['restart_delays_ms'])
    $failure = ''
    if ($delays.Count -gt 0) {
        $failure = "reset $($Item['failure']['reset_seconds'])"
        foreach ($delay in $delays) { $failure += " 1/$delay" }
    }
    $environment = @($Item['environment'].Keys | Sort-Object | ForEach-Object { "$_=$($Item['environment'][$_])" })
    return @{
        command = $Item['command']
        display = $Item['display']
        description = $Item['description']
        depends = @($Item['depends']) -join '/'
        start = @{ auto = 2; demand = 3; disabled = 4 }[$Item['start']]
        failure = $failure
        environment = $environment -join "`n"
    }
}

# Numbers of CpuPriorityClass (Image File Execution Options).
function Get-PriorityNumber([string]$Class) {
    return @{ below_normal = 5; normal = 2; above_normal = 6; high = 3 }[$Class]
}

function Get-PriorityKey([string]$Executable) {
    Assert-Name $Executable
    return "SOFTWARE\Microsoft\Windows NT\CurrentVersion\Image File Execution Options\$Executable\PerfOptions"
}

function Test-Priority($Priority) {
    if ($null -eq $Priority) { return $true }
    $found = Get-RegistryValue (Get-PriorityKey $Priority['executable']) 'CpuPriorityClass'
    return ($found -eq (Get-PriorityNumber $Priority['class']))
}

# Names of the settings that differ.
function Compare-Service($Found, $Wanted, $Priority) {
    $differing = New-Object -TypeName 'System.Collections.Generic.List[string]'
    foreach ($name in 'command', 'display', 'description', 'depends', 'start', 'failure', 'environment') {
        if ($Found[$name] -cne $Wanted[$name]) { $differing.Add($name) }
    }
    if (-not (Test-Priority $Priority)) { $differing.Add('priority') }
    return $differing.ToArray()
}

# State of a service: 1 stopped, 2 starting, 3 stopping, 4 running, 7 paused; 0: there is none.
function Get-ServiceState([string]$Name) {
    if ($null -eq (Get-ServiceSettings $Name)) { return 0 }
    $service = New-Object -TypeName System.ServiceProcess.ServiceController -ArgumentList $Name
    try { return [int]$service.Status }
    catch {
        # 1060: the key is still there, the service is gone.
        if ((Get-Win32Number $_) -eq 1060) { return 0 }
        throw
    }
    finally { $service.Dispose() } # an open handle would keep a deleted service alive
}

# The programs that a command line starts: the first word, and what a wrapper (kube-log-runner) starts in turn.
function Get-Executables([string]$Command) {
    $found = New-Object -TypeName 'System.Collections.Generic.List[string]'
    $quoted = '"[a-z]:\\[^"]+\.exe"'
    $plain = '(?<=^|\s)[a-z]:\\[^\s"]+\.exe(?=\s|$)'
    foreach ($match in [regex]::Matches($Command, "(?i)$quoted|$plain")) {
        $found.Add($match.Value.Trim('"'))
    }
    return $found.ToArray()
}

function Get-Processes([string[]]$Executables) {
    return @(Get-CimInstance -ClassName Win32_Process |
            Where-Object { $Executables -contains $_.ExecutablePath } |
            ForEach-Object { [int]$_.ProcessId })
}

# Stops a service, those that depend on it first, and waits until its processes have ended: only then is its program
# free. A process that does not end within a minute is ended.
function Stop-ServiceAndWait([string]$Name) {
    $state = Get-ServiceState $Name
    if ($state -lt 2) { return }
    $executables = @(Get-Executables (Get-ServiceSettings $Name).command)
    $service = New-Object -TypeName System.ServiceProcess.ServiceController -ArgumentList $Name
    try {
        foreach ($dependent in $service.DependentServices) {
            $dependentName = $dependent.ServiceName
            $dependent.Dispose()
            Stop-ServiceAndWait $dependentName
        }
        $processes = @(Get-Processes $executables)
        try { if ($state -ne 3) { $service.Stop() } }
        catch {
            # 1062: it is not running. 1061: it takes no orders now; it is ended below.
            if (1061, 1062 -notcontains (Get-Win32Number $_)) { throw }
        }
    }
    finally { $service.Dispose() }
    if (Wait-ServiceEnd $Name $processes 60000) { return }
    foreach ($process in $processes) { Stop-Process -Id $process -Force -ErrorAction SilentlyContinue }
    if (-not (Wait-ServiceEnd $Name $processes 15000)) {
        throw (New-Failure 'service_stop_timeout' "$Name, or its process, does not end")
    }
}

function Wait-ServiceEnd([string]$Name, [int[]]$Processes, [int]$Milliseconds) {
    $waited = [Diagnostics.Stopwatch]::StartNew()
    do {
        $alive = @($Processes | Where-Object { $null -ne (Get-Process -Id $_ -ErrorAction SilentlyContinue) })
        if (((Get-ServiceState $Name) -lt 2) -and ($alive.Count -eq 0)) { return $true }
        Wait-Moment 250
    } while ($waited.ElapsedMilliseconds -lt $Milliseconds)
    return $false
}

# Win32_Service answers with numbers of its own: 0 done, 2 access denied, 16 marked for deletion, 23 exists.
function Assert-ServiceReturn([string]$Name, [int]$Number) {
    if ($Number -eq 0) { return }
    $code = 'service_config_failed'
    if ($Number -eq 2) { $code = 'access_denied' }
    if ($Number -eq 16) { $code = 'service_marked_for_deletion' }
    throw (New-Failure $code "Windows answered $Number for the service $Name")
}

function Get-StartMode([string]$Start) {
    return @{ auto = 'Automatic'; demand = 'Manual'; disabled = 'Disabled' }[$Start]
}

# Makes a service. While somebody holds a deleted one of this name open, Windows makes no new one: that is waited for.
function New-ServiceItem($Item) {
    $arguments = @{
        Name = $Item['name']; DisplayName = $Item['display']; PathName = $Item['command']
        ServiceType = [byte]16; ErrorControl = [byte]1; DesktopInteract = $false
        StartMode = Get-StartMode $Item['start']
    }
    $waited = [Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        $made = Invoke-CimMethod -ClassName Win32_Service -MethodName Create -Arguments $arguments
        if (($made.ReturnValue -ne 16) -or ($waited.ElapsedMilliseconds -ge 90000)) { break }
        Wait-Moment 2000
    }
    if ($made.ReturnValue -ne 23) { Assert-ServiceReturn $Item['name'] $made.ReturnValue }
}

function Update-ServiceItem($Item) {
    $name = $Item['name']
    $service = Get-CimInstance -ClassName Win32_Service -Filter "Name='$name'"
    $arguments = @{
        DisplayName = $Item['display']; PathName = $Item['command']; StartMode = Get-StartMode $Item['start']
    }
    $changed = Invoke-CimMethod -InputObject $service -MethodName Change -Arguments $arguments
    Assert-ServiceReturn $name $changed.ReturnValue
}

# What Win32_Service cannot set: dependencies and failure actions by sc.exe, the rest in the registry, where Windows
# looks for it when the service starts.
function Set-ServiceRest($Item) {
    $name = $Item['name']
    $depends = @($Item['depends']) -join '/'
    if ($depends -eq '') { $depends = '/' }
    Invoke-Native "$system\sc.exe" @('config', $name, 'depend=', $depends) @(0) 'service_config_failed'
    $actions = @(@($Item['failure']['restart_delays_ms']) | ForEach-Object { "restart/$_" }) -join '/'
    if ($actions -eq '') { $actions = '""' }
    $reset = "$($Item['failure']['reset_seconds'])"
    Invoke-Native "$system\sc.exe" @('failure', $name, 'reset=', $reset, 'actions=', $actions) @(0) `
        'service_config_failed'
    $key = "SYSTEM\CurrentControlSet\Services\$name"
    Set-RegistryValue $key 'Description' $Item['description'] 'String'
    $environment = (Get-WantedSettings $Item).environment
    if ($environment -eq '') { Remove-RegistryValue $key 'Environment' }
    else { Set-RegistryValue $key 'Environment' ([string[]]$environment.Split([char]10)) 'MultiString' }
    if ($null -ne $Item['priority']) {
        $number = Get-PriorityNumber $Item['priority']['class']
        Set-RegistryValue (Get-PriorityKey $Item['priority']['executable']) 'CpuPriorityClass' $number 'DWord'
    }
}

function Set-ServiceItem($Item) {
    $name = $Item['name']
    $run.log = $Item['log']
    $state = Get-ServiceState $name
    $differing = @()
    if ($state -ne 0) {
        $differing = @(Compare-Service (Get-ServiceSettings $name) (Get-WantedSettings $Item) $Item['priority'])
        if (($differing.Count -eq 0) -and (($state -eq 4) -or -not $Item['running'])) { return New-Step 'ok' '' }
    }
    if (-not $run.apply) {
        if ($state -eq 0) { return New-Step 'differs' 'is not there' }
        if ($differing.Count -gt 0) { return New-Step 'differs' ('differs in ' + ($differing -join ', ')) }
        return New-Step 'differs' 'is not running'
    }
    if ($state -eq 0) {
        New-ServiceItem $Item
        Set-ServiceRest $Item
    }
    elseif ($differing.Count -gt 0) {
        Stop-ServiceAndWait $name
        Update-ServiceItem $Item
        Set-ServiceRest $Item
    }
    if (-not $Item['running']) { return New-Step 'changed' 'configured' }
    Start-ServiceAndWait $Item
    return New-Step 'changed' 'started'
}

# Errors of StartService.
function Get-StartFailure([int]$Number) {
    switch ($Number) {
        1053 { return 'service_start_timeout' }
        1067 { return 'service_crashed' }
        1068 { return 'dependency_failed' }
        1072 { return 'service_marked_for_deletion' }
        1075 { return 'dependency_failed' }
        2 { return 'quarantine_suspected' }
        3 { return 'quarantine_suspected' }
        5 { return 'access_denied' }
        225 { return 'quarantine_suspected' }
    }
    return 'service_config_failed'
}

# Starts a service and waits until it runs, which does not mean yet that it serves: evidence items look at that.
function Start-ServiceAndWait($Item) {
    $name = $Item['name']
    foreach ($path in Get-Executables $Item['command']) {
        if (-not [IO.File]::Exists($path)) {
            throw (New-Failure 'quarantine_suspected' "$path was put there and is gone")
        }
    }
    $service = New-Object -TypeName System.ServiceProcess.ServiceController -ArgumentList $name
    try { $service.Start() }
    catch {
        $number = Get-Win32Number $_
        # 1056: it runs already.
        if ($number -ne 1056) { throw (New-Failure (Get-StartFailure $number) "$($name): $((Get-Cause $_).Message)") }
    }
    finally { $service.Dispose() }
    $waited = [Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        $state = Get-ServiceState $name
        if ($state -eq 4) { return }
        if ($state -eq 1) {
            $ended = Get-CimInstance -ClassName Win32_Service -Filter "Name='$name'"
            throw (New-Failure 'service_crashed' "$name ended with $($ended.ExitCode)")
        }
        if ($waited.ElapsedMilliseconds -ge $Item['start_timeout_ms']) {
            throw (New-Failure 'service_start_timeout' "$name does not run after $($Item['start_timeout_ms']) ms")
        }
        Wait-Moment 250
    }
}

function Remove-ServiceItem([string]$Name) {
    if ((Get-ServiceState $Name) -eq 0) { return New-Step 'ok' '' }
    Stop-ServiceAndWait $Name
    $service = Get-CimInstance -ClassName Win32_Service -Filter "Name='$Name'"
    $deleted = Invoke-CimMethod -InputObject $service -MethodName Delete
    # 16: it is marked already, and goes when the last handle is closed.
    if ($deleted.ReturnValue -ne 16) { Assert-ServiceReturn $Name $deleted.ReturnValue }
    return New-Step 'changed' 'gone'
}

#endregion
#region Items: the network

# One request to the Host Networking Service, which speaks JSON. Requests that make or remove a network bind the network
# card anew: the SSH connection is lost, this script goes on.
function Invoke-Hns([string]$Verb, [string]$Path, $Body) {
    if ($null -eq ('Dormer.Hns' -as [type])) {
        Add-Type -Namespace Dormer -Name Hns -MemberDefinition @'
[DllImport("vmcompute.dll")]
public static extern void HNSCall(
    [MarshalAs(UnmanagedType.LPWStr)] string method, [MarshalAs(UnmanagedType.LPWStr)] string path,
    [MarshalAs(UnmanagedType.LPWStr)] string request, [MarshalAs(UnmanagedType.LPWStr)] out string response);
'@
    }
    $request = ''
    if ($null -ne $Body) { $request = ConvertTo-Json -InputObject $Body -Compress -Depth 8 }
    $response = ''
    try { [Dormer.Hns]::HNSCall($Verb, $Path, $request, [ref]$response) }
    catch { throw (New-Failure 'hns_failed' (Get-Cause $_).Message) }
    if ([string]$response -eq '') { return }
    $answer = $reader.DeserializeObject($response)
    if (-not $answer['Success']) { throw (New-Failure 'hns_failed' "$Verb $($Path): $($answer['Error'])") }
    return $answer['Output']
}

function Find-HnsNetwork([string]$Name) {
    foreach ($network in @(Invoke-Hns 'GET' '/networks' $null)) {
        if (($null -ne $network) -and ($network['Name'] -eq $Name)) { return $network }
    }
}

function Find-HnsEndpoint([string]$Name) {
    foreach ($endpoint in @(Invoke-Hns 'GET' '/endpoints' $null)) {
        if (($null -ne $endpoint) -and ($endpoint['Name'] -eq $Name)) { return $endpoint }
    }
}

# There is no such service before the feature Containers is enabled.
function Test-Hns { return (Get-ServiceState 'hns') -ne 0 }

function New-HnsNetworkItem($Item) {
    $create = $Item['create']
    $subnet = @{ AddressPrefix = $create['subnet']; GatewayAddress = $create['gateway'] }
    if ($null -ne $create['vsid']) { $subnet['Policies'] = @(@{ Type = 'VSID'; VSID = $create['vsid'] }) }
    $body = @{ Name = $Item['name']; Type = $create['network_type']; Subnets = @($subnet) }
    [void](Invoke-Hns 'POST' '/networks' $body)
}

function Set-HnsNetworkItem($Item) {
    $name = $Item['name']
    if ((Test-Hns) -and ($null -ne (Find-HnsNetwork $name))) { return New-Step 'ok' '' }
    if (-not $run.apply) { return New-Step 'differs' 'is not there' }
    if (-not (Test-Hns)) { throw (New-Failure 'hns_missing' 'the service hns is not there') }
    if ($null -ne $Item['create']) {
        New-HnsNetworkItem $Item
        return New-Step 'changed' 'made'
    }
    $waited = [Diagnostics.Stopwatch]::StartNew()
    while ($waited.ElapsedMilliseconds -lt $Item['wait_ms']) {
        Wait-Moment 1000
        if ($null -ne (Find-HnsNetwork $name)) { return New-Step 'ok' '' }
    }
    throw (New-Failure 'hns_missing' "no HNS network $name")
}

# An endpoint in the host's own compartment, which is number 1.
function Set-HnsEndpointItem($Item) {
    if ((Test-Hns) -and ($null -ne (Find-HnsEndpoint $Item['name']))) { return New-Step 'ok' '' }
    if (-not $run.apply) { return New-Step 'differs' 'is not there' }
    $network = Find-HnsNetwork $Item['network']
    if ($null -eq $network) { throw (New-Failure 'hns_missing' "no HNS network $($Item['network'])") }
    # They hold what they made of the endpoint that was lost; this call starts them again.
    if ($Item.ContainsKey('users')) { foreach ($user in @($Item['users'])) { Stop-ServiceAndWait $user } }
    $body = @{ Name = $Item['name']; VirtualNetwork = $network['ID'] }
    $endpoint = Invoke-Hns 'POST' '/endpoints' $body
    try { [void](Invoke-Hns 'POST' "/endpoints/$($endpoint['ID'])/attach" @{ SystemType = 'Host'; CompartmentId = 1 }) }
    catch {
        # Half an endpoint would look right to the next call.
        [void](Invoke-Hns 'DELETE' "/endpoints/$($endpoint['ID'])" $null)
        throw
    }
    return New-Step 'changed' 'made'
}

# The content of a file that needs facts of the network; nothing while the network is not there.
function Get-NetworkContent($Item) {
    if (-not (Test-Hns)) { return }
    $network = Find-HnsNetwork $Item['network']
    if ($null -eq $network) { return }
    $address = ''
    if ($null -ne $Item['endpoint']) {
        $endpoint = Find-HnsEndpoint $Item['endpoint']
        if ($null -eq $endpoint) { return }
        $address = [string]$endpoint['IPAddress']
    }
    $subnet = [string]@($network['Subnets'])[0]['AddressPrefix']
    $text = $Item['template'].Replace('@{HNS_SUBNET}', $subnet)
    $text = $text.Replace('@{HNS_MANAGEMENT_IP}', [string]$network['ManagementIP'])
    return $text.Replace('@{HNS_ENDPOINT_IP}', $address)
}

function Set-NetworkFileItem($Item) {
    $content = Get-NetworkContent $Item
    if ($null -eq $content) {
        if (-not $run.apply) { return New-Step 'differs' 'its network is not there' }
        throw (New-Failure 'hns_missing' "no HNS network $($Item['network']), or not its endpoint")
    }
    $wanted = Get-BytesHash ([Text.Encoding]::UTF8.GetBytes($content))
    if ((Get-FileHashOrNothing $Item['path']) -eq $wanted) { return New-Step 'ok' '' }
    if (-not $run.apply) { return New-Step 'differs' 'differs' }
    foreach ($user in @($Item['users'])) { Stop-ServiceAndWait $user }
    Install-Text $Item['path'] $content
    return New-Step 'changed' 'written'
}

# A route by way of the default gateway; a new HNS network can make Windows forget it.
function Set-RouteItem($Item) {
    $found = @(Get-NetRoute -DestinationPrefix $Item['prefix'] -ErrorAction SilentlyContinue)
    if ($found.Count -gt 0) { return New-Step 'ok' '' }
    if (-not $run.apply) { return New-Step 'differs' 'is not there' }
    $defaults = @(Get-NetRoute -DestinationPrefix '0.0.0.0/0' -ErrorAction SilentlyContinue |
            Sort-Object -Property RouteMetric)
    if ($defaults.Count -eq 0) { throw (New-Failure 'no_default_route' 'the host has no default route') }
    $gateway = @{
        DestinationPrefix = $Item['prefix']; InterfaceIndex = $defaults[0].InterfaceIndex
        NextHop = $defaults[0].NextHop
    }
    [void](New-NetRoute @gateway)
    return New-Step 'changed' 'added'
}

#endregion
#region Items: evidence

# What is no evidence: plan says that it differs, apply fails.
function New-NoEvidence([string]$Code, [string]$Message) {
    if ($run.apply) { throw (New-Failure $Code $Message) }
    return New-Step 'differs' $Message
}

function Test-SteadyServiceItem($Item) {
    $run.log = $Item['log']
    $name = $Item['service']
    $before = Get-ServiceProcess $name
    if (($before -eq 0) -or ((Get-ServiceState $name) -ne 4)) {
        return New-NoEvidence 'service_crashed' "$name is not running"
    }
    if ($run.apply) { Wait-Moment $Item['steady_ms'] }
    if ((Get-ServiceProcess $name) -eq $before) { return New-Step 'ok' '' }
    return New-NoEvidence 'service_crashed' "$name changed its process"
}

# Whether an address on the host answers 200. A proxy is never asked.
function Test-Http([string]$Url) {
    try {
        $request = [Net.WebRequest]::Create($Url)
        $request.Proxy = $null
        $request.Timeout = 2000
        $response = $request.GetResponse()
        try { return ([int]$response.StatusCode -eq 200) } finally { $response.Dispose() }
    }
    catch { return $false }
}

function Test-HttpItem($Item) {
    $run.log = $Item['log']
    $limit = $(if ($run.apply) { $Item['wait_ms'] } else { 0 })
    $waited = [Diagnostics.Stopwatch]::StartNew()
    while (-not (Test-Http $Item['url'])) {
        if ($waited.ElapsedMilliseconds -ge $limit) {
            return New-NoEvidence 'not_healthy' "$($Item['url']) does not answer 200"
        }
        Wait-Moment 1000
    }
    return New-Step 'ok' ''
}

#endregion
#region Removal

function New-Gone([bool]$WasThere) {
    if ($WasThere) { return New-Step 'changed' 'gone' }
    return New-Step 'ok' ''
}

function Remove-FileItem([string]$Path) {
    if (-not [IO.File]::Exists($Path)) { return New-Gone $false }
    Wait-FileFree $Path 30000
    [IO.File]::Delete($Path)
    return New-Gone $true
}

function Remove-DirectoryItem($Item) {
    if ($Item['keep'] -or -not [IO.Directory]::Exists($Item['path'])) { return New-Gone $false }
    $waited = [Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        try {
            Remove-Tree $Item['path']
            return New-Gone $true
        }
        catch {
            if ($waited.ElapsedMilliseconds -ge 30000) { throw (New-Failure 'file_locked' (Get-Cause $_).Message) }
        }
        Wait-Moment 1000
    }
}

function Remove-CertificateItem($Item) {
    try {
        $store = Open-RootStore
        try {
            $certificate = Find-Certificate $store $Item['sha256']
            if ($null -eq $certificate) { return New-Gone $false }
            $store.Remove($certificate)
            return New-Gone $true
        }
        finally { $store.Close() }
    }
    catch { throw (New-Failure 'certificate_failed' (Get-Cause $_).Message) }
}

function Remove-FirewallItem($Item) {
    try {
        $policy = New-Object -ComObject HNetCfg.FwPolicy2
        if ($null -eq (Get-FirewallRule $policy.Rules $Item['name'])) { return New-Gone $false }
        [void]$policy.Rules.Remove($Item['name'])
        return New-Gone $true
    }
    catch { throw (New-Failure 'firewall_failed' (Get-Cause $_).Message) }
}

function Remove-EnvironmentItem($Item) {
    if ($null -eq [Environment]::GetEnvironmentVariable($Item['name'], 'Machine')) { return New-Gone $false }
    [Environment]::SetEnvironmentVariable($Item['name'], '', 'Machine')
    return New-Gone $true
}

# The key stays: others may use it.
function Remove-RegistryItem($Item) {
    $opened = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($Item['key'])
    if ($null -eq $opened) { return New-Gone $false }
    try { $there = $null -ne $opened.GetValue($Item['name']) } finally { $opened.Dispose() }
    if ($there) { Remove-RegistryValue $Item['key'] $Item['name'] }
    return New-Gone $there
}

function Remove-DefenderExclusionItem($Item) {
    if (-not (Test-Defender)) { return New-Gone $false }
    try {
        if (@((Get-MpPreference).ExclusionProcess) -notcontains $Item['process']) { return New-Gone $false }
        Remove-MpPreference -ExclusionProcess $Item['process']
    }
    catch { throw (New-Failure 'defender_failed' (Get-Cause $_).Message) }
    return New-Gone $true
}

function Remove-HnsThing([string]$Kind, $Found) {
    if ($null -eq $Found) { return New-Gone $false }
    [void](Invoke-Hns 'DELETE' "/$Kind/$($Found['ID'])" $null)
    return New-Gone $true
}

function Remove-LingeringItem($Item) {
    Assert-Name $Item['process']
    $processes = @(Get-Process -Name $Item['process'] -ErrorAction SilentlyContinue)
    foreach ($process in $processes) { Stop-Process -InputObject $process -Force -ErrorAction SilentlyContinue }
    foreach ($process in $processes) { [void]$process.WaitForExit(10000) }
    return New-Gone ($processes.Count -gt 0)
}

# Features, computer name and routes stay: others may need them, and a reboot is not worth their going.
function Remove-DocumentItem($Item) {
    switch ($Item['kind']) {
        'service' { return Remove-ServiceItem $Item['name'] }
        'file' { return Remove-FileItem $Item['path'] }
        'network_file' { return Remove-FileItem $Item['path'] }
        'directory' { return Remove-DirectoryItem $Item }
        'environment' { return Remove-EnvironmentItem $Item }
        'registry' { return Remove-RegistryItem $Item }
        'firewall' { return Remove-FirewallItem $Item }
        'defender_exclusion' { return Remove-DefenderExclusionItem $Item }
        'certificate' { return Remove-CertificateItem $Item }
        'lingering' { return Remove-LingeringItem $Item }
        'hns_endpoint' {
            if (-not (Test-Hns)) { return New-Gone $false }
            return Remove-HnsThing 'endpoints' (Find-HnsEndpoint $Item['name'])
        }
        'hns_network' {
            if (-not (Test-Hns)) { return New-Gone $false }
            return Remove-HnsThing 'networks' (Find-HnsNetwork $Item['name'])
        }
    }
    return New-Step 'ok' ''
}

#endregion
#region Modes

function Set-DocumentItem($Item) {
    switch ($Item['kind']) {
        'directory' { return Set-DirectoryItem $Item }
        'file' { return Set-FileItem $Item }
        'feature' { return Set-FeatureItem $Item }
        'hostname' { return Set-HostnameItem $Item }
        'environment' { return Set-EnvironmentItem $Item }
        'registry' { return Set-RegistryItem $Item }
        'service' { return Set-ServiceItem $Item }
        'firewall' { return Set-FirewallItem $Item }
        'defender_exclusion' { return Set-DefenderExclusionItem $Item }
        'certificate' { return Set-CertificateItem $Item }
        'hns_network' { return Set-HnsNetworkItem $Item }
        'hns_endpoint' { return Set-HnsEndpointItem $Item }
        'network_file' { return Set-NetworkFileItem $Item }
        'route' { return Set-RouteItem $Item }
        'steady_service' { return Test-SteadyServiceItem $Item }
        'http' { return Test-HttpItem $Item }
        'sweep' { return Set-SweepItem $Item }
        'only_folders' { return Set-OnlyFoldersItem $Item }
        'only_certificates' { return Set-OnlyCertificatesItem $Item }
        'lingering' { return New-Step 'ok' '' }
    }
    throw (New-Failure 'document_rejected' "this script knows no item of kind '$($Item['kind'])'")
}

function Add-Outcome($Item, [string]$State, [string]$Detail) {
    $run.outcomes.Add(@{ id = $Item['id']; state = $State; detail = $Detail })
}

# Why the call ends early. Some failures are final: the same call would do no better later.
function Set-CallFailure([string]$Code, $ItemId, [string]$Message) {
    $final = 'fence_too_old', 'document_rejected', 'boot_changed', 'no_default_route', 'quarantine_suspected',
        'access_denied'
    $tail = ''
    $service = 'service_start_timeout', 'service_crashed', 'not_healthy', 'dependency_failed'
    if (($service -contains $Code) -and ($null -ne $run.log)) { $tail = Get-LogTail $run.log }
    $run.failure = @{
        code = $Code; item = $ItemId; message = $Message; log_tail = $tail; retry = ($final -notcontains $Code)
    }
}

function Save-Step($Item, $Step) {
    switch ($Step.state) {
        'reboot' {
            $run.reboot.Add($Item['id'])
            Add-Outcome $Item 'differs' $Step.detail
        }
        'missing' {
            $run.missing.Add($Step.detail)
            Add-Outcome $Item 'differs' 'not uploaded'
            if ($run.apply) {
                Set-CallFailure 'file_missing' $Item['id'] 'a file is neither in place nor staged'
            }
        }
        default { Add-Outcome $Item $Step.state $Step.detail }
    }
}

# One item after another; after a failure the rest is skipped.
function Invoke-Items($Items, [bool]$Removing) {
    foreach ($item in $Items) {
        if ($null -ne $run.failure) {
            Add-Outcome $item 'skipped' ''
            continue
        }
        $run.log = $null
        if ($run.signed.ElapsedMilliseconds -ge 1000) { Send-Sign $item['id'] }
        try {
            # The last thing on the pipeline is the step, should a command before it have said something.
            if ($Removing) { $step = @(Remove-DocumentItem $item)[-1] }
            else { $step = @(Set-DocumentItem $item)[-1] }
            Save-Step $item $step
        }
        catch {
            $message = (Get-Cause $_).Message
            Add-Outcome $item 'failed' $message
            Set-CallFailure (Get-FailureCode $_) $item['id'] $message
        }
    }
}

# What was converged here, per section; an empty version forgets the section.
function Save-Installed([string]$Section, [string]$Version) {
    $path = "$root\installed.json"
    $others = @(@(Read-JsonFile $path) | Where-Object { $_['section'] -ne $Section })
    if ($Version -ne '') { $others += @{ section = $Section; version = $Version; task = $Task } }
    Save-Json $path @($others)
}

# Uploads that this task, up to this attempt, or an older one left unfinished (a host without power, a connection that
# was lost). Their names end in .SEQ-ORDINAL-ATTEMPT.part; those of a newer attempt are under way and stay.
function Clear-Parts {
    foreach ($file in [IO.Directory]::GetFiles($root, '*.part', 'AllDirectories')) {
        $found = [regex]::Match($file, '\.(\d{1,18})-\d{1,9}-(\d{1,9})\.part$')
        if (-not $found.Success) { continue }
        $of = [long]$found.Groups[1].Value
        $at = [int]$found.Groups[2].Value
        if (($of -lt $Seq) -or (($of -eq $Seq) -and ($at -le $Attempt))) {
            try { [IO.File]::Delete($file) } catch { $run.log = $null }
        }
    }
}

# A virus scanner takes a file away some seconds after it came: what was right a moment ago is to be there still.
function Assert-FilesStay($Items) {
    foreach ($item in $Items) {
        if (($item['kind'] -ne 'file') -or [IO.File]::Exists($item['path'])) { continue }
        Set-CallFailure 'quarantine_suspected' $item['id'] "$($item['path']) was right and is gone"
        return
    }
}

function Invoke-Converge {
    $read = Read-Document
    Invoke-Items $read['items'] $false
    if ($run.apply -and ($null -eq $run.failure) -and ($run.missing.Count -eq 0)) {
        Assert-FilesStay $read['items']
    }
    $waiting = $run.reboot.Count + @(Get-WaitingForReboot).Count
    if ($run.apply -and ($null -eq $run.failure) -and ($run.missing.Count -eq 0) -and ($waiting -eq 0)) {
        Clear-Parts
        Save-Installed $read['section'] $read['version']
    }
}

function Invoke-Remove {
    $read = Read-Document
    $items = @($read['items'])
    [Array]::Reverse($items)
    Invoke-Items $items $true
    $run.outcomes.Reverse()
    if ($null -eq $run.failure) { Save-Installed $read['section'] '' }
}

# In five seconds, so that the answer gets out. 1190: one is on its way already; 1115: it has begun.
function Invoke-Reboot {
    $arguments = '/r', '/f', '/t', '5', '/c', 'dormer: this node needs a reboot'
    Invoke-Native "$system\shutdown.exe" $arguments @(0, 1115, 1190) 'reboot_refused'
    $run.rebootAsked = $true
}

function Invoke-Call {
    $run.bootId = Get-BootIdentity
    Initialize-Folders
    Assert-Script
    if ($Mode -eq 'probe') { return }
    $run.mutex = New-HostMutex
    Enter-Mutex $run.mutex
    $run.entered = $true
    Assert-Boot
    if ('apply', 'remove', 'reboot', 'adopt' -contains $Mode) { Update-Fence }
    switch ($Mode) {
        'plan' { Invoke-Converge }
        'apply' { Invoke-Converge }
        'remove' { Invoke-Remove }
        'reboot' { Invoke-Reboot }
        'adopt' { return }
        default { throw (New-Failure 'document_rejected' "there is no mode '$Mode'") }
    }
}

#endregion
#region The answer

function Get-Reboot($Facts) {
    if ($run.rebootAsked) { return @{ state = 'pending' } }
    $why = @($run.reboot.ToArray()) + @(Get-WaitingForReboot)
    if (($why.Count -eq 0) -and ($null -ne $Facts['hostname_pending'])) {
        $why = @("hostname:$($Facts['hostname_pending'])")
    }
    if (($why.Count -eq 0) -and ($Facts['containers'] -eq 'pending')) { $why = @('feature:Containers') }
    if ($why.Count -eq 0) { return @{ state = 'none' } }
    return @{ state = 'needed'; why = @($why | Select-Object -Unique) }
}

# A retry asks the host whether its predecessor ended; one that never got the mutex is none.
function Save-LastCall {
    $ok = ($null -eq $run.failure)
    if (($Mode -eq 'probe') -or -not $run.entered) { return }
    Save-Json "$root\last.json" @{ task = $Task; attempt = $Attempt; mode = $Mode; ok = $ok }
}

# One line: mark, task, attempt, JSON in base64, and a check over the base64. Base64 passes every code page, and the
# check tells a line that was cut.
function Write-Answer($Answer) {
    $json = ConvertTo-Json -InputObject $Answer -Compress -Depth 6
    $body = [Convert]::ToBase64String([Text.Encoding]::UTF8.GetBytes($json))
    $check = (Get-BytesHash ([Text.Encoding]::ASCII.GetBytes($body))).Substring(0, 8)
    [Console]::Out.Write("`r`nDORMER1 $Task $Attempt $body $check`r`n")
}

try { Invoke-Call }
catch { Set-CallFailure (Get-FailureCode $_) $null (Get-Cause $_).Message }
try { $facts = Get-Facts }
catch {
    $facts = Get-NoFacts
    if ($null -eq $run.failure) { Set-CallFailure 'other' $null "no facts: $((Get-Cause $_).Message)" }
}
try { Save-LastCall }
catch { if ($null -eq $run.failure) { Set-CallFailure (Get-FailureCode $_) $null (Get-Cause $_).Message } }
if ($run.entered) { $run.mutex.ReleaseMutex() }
Write-Answer @{
    schema = 1; task = $Task; attempt = $Attempt; mode = $Mode; script = $ScriptHash
    facts = $facts; items = $run.outcomes.ToArray(); missing_files = $run.missing.ToArray()
    reboot = Get-Reboot $facts; failure = $run.failure; took_ms = $clock.ElapsedMilliseconds
}
if ($null -eq $run.failure) { exit 0 }
exit 1
#endregion
