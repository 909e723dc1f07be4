# The converge script, Windows PowerShell 5.1. This build converges no real host yet: it reads its
# call, changes nothing, and answers with a typed failure, so that nobody takes silence for success.
param(
    [string]$Mode, [string]$Task, [int]$Attempt, [long]$Generation, [long]$Seq,
    [string]$ScriptHash, [string]$BootId = '',
    [string]$Document = '', [string]$DocumentHash = '', [string]$DocumentText = ''
)
Set-StrictMode -Version 2
$ProgressPreference = 'SilentlyContinue'
$ErrorActionPreference = 'Stop'

$epoch = [DateTime]::SpecifyKind([DateTime]'1970-01-01', 'Utc')
$facts = @{
    os_build = "$([Environment]::OSVersion.Version.ToString(3))"; product = 'Windows'
    hostname = $env:COMPUTERNAME; boot_id = ''; booted_ms = 0
    now_ms = [long]([DateTime]::UtcNow - $epoch).TotalMilliseconds
    shell = "$($PSVersionTable.PSVersion)"; code_page = [Console]::OutputEncoding.CodePage
    containers = 'unknown'; reboot_pending = $false; free_bytes = 0
}
$answer = @{
    schema = 1; task = $Task; attempt = $Attempt; mode = $Mode; script = $ScriptHash
    facts = $facts; reboot = @{ state = 'none' }
    failure = @{
        code = 'document_rejected'; retry = $false
        message = 'This build of dormer does not converge real Windows hosts yet; nothing was changed.'
    }
}
$json = ConvertTo-Json -InputObject $answer -Compress -Depth 5
$body = [Convert]::ToBase64String([Text.Encoding]::UTF8.GetBytes($json))
$bytes = [Security.Cryptography.SHA256]::Create().ComputeHash([Text.Encoding]::ASCII.GetBytes($body))
$check = [BitConverter]::ToString($bytes).Replace('-', '').ToLowerInvariant().Substring(0, 8)
[Console]::Out.Write("`r`nDORMER1 $Task $Attempt $body $check`r`n")
exit 1
