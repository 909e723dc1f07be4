# Written by dormer: opens this machine to dormer's key over SSH, and does nothing else. Runs at boot, as SYSTEM, and may
# run again at any time. Windows PowerShell 5.1.
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

function Enable-Administrator {
    # Azure makes the user capi. Elsewhere the built-in account must be on: keys of administrators open it alone.
    $users = @(Get-LocalUser)
    if ($users | Where-Object { $_.Name -eq 'capi' }) { return }
    # Its name is translated; the end of its SID is not.
    $admin = $users | Where-Object { $_.SID.Value.EndsWith('-500') }
    if ($admin.Enabled) { return }
    # Nobody shall know the password.
    $bytes = New-Object -TypeName byte[] -ArgumentList 24
    $random = [Security.Cryptography.RandomNumberGenerator]::Create()
    $random.GetBytes($bytes)
    $secret = New-Object -TypeName Security.SecureString
    foreach ($letter in ('aA1!' + [Convert]::ToBase64String($bytes)).ToCharArray()) { $secret.AppendChar($letter) }
    Set-LocalUser -InputObject $admin -Password $secret
    Enable-LocalUser -InputObject $admin
}

function Install-Server {
    # Windows Server 2025 has it. This is the one thing that comes from the internet, or from the image's own sources.
    for ($try = 1; $try -le 10; $try++) {
        if (Get-Service | Where-Object { $_.Name -eq 'sshd' }) { return }
        try {
            Add-WindowsCapability -Online -Name 'OpenSSH.Server~~~~0.0.1.0'
        }
        catch {
            if ($try -eq 10) { throw }
            Start-Sleep -Seconds 5
        }
    }
}

function Open-Port([string]$Name, [int]$Port) {
    $known = Get-NetFirewallRule | Where-Object { $_.Name -eq $Name }
    if ($known) {
        Set-NetFirewallRule -Name $Name -Enabled True -Profile Any
        return
    }
    New-NetFirewallRule -Name $Name -DisplayName $Name -Direction Inbound -Action Allow -Protocol TCP `
        -LocalPort $Port -Profile Any -EdgeTraversalPolicy Allow
}

function Set-Option([string[]]$Lines, [string]$Name, [string]$Value) {
    # Before the first Match, which the default configuration ends with: below it, it would hold for administrators alone.
    $kept = $Lines | Where-Object { $_ -notmatch "^\s*#?\s*$Name\s" }
    return @("$Name $Value") + @($kept)
}

function Set-Access([string]$Key) {
    $folder = "$env:ProgramData\ssh"
    $config = "$folder\sshd_config"
    $lines = [IO.File]::ReadAllLines($config)
    $lines = Set-Option $lines 'PubkeyAuthentication' 'yes'
    $lines = Set-Option $lines 'PasswordAuthentication' 'no'
    [IO.File]::WriteAllLines($config, $lines)
    $keys = "$folder\administrators_authorized_keys"
    $lines = @()
    if ([IO.File]::Exists($keys)) { $lines = @([IO.File]::ReadAllLines($keys)) }
    # A key with # before it was taken away (dormer ssh-key finish), and does not come back. Then the file stays.
    $base64 = $Key.Split(' ')[1]
    $gone = @($lines | Where-Object { $_.StartsWith('#') -and $_.Contains($base64) })
    if ($gone.Count -eq 0) {
        # Ours are the lines with our comment, and this key in whatever line. Other administrators keep theirs.
        $others = @($lines | Where-Object { -not ($_.TrimEnd().EndsWith(' dormer') -or $_.Contains($Key)) })
        [IO.File]::WriteAllLines($keys, [string[]](@("$Key dormer", '@STAYS_OUT@') + $others))
    }
    # Administrators and SYSTEM, by their numbers: their names are translated. sshd takes no file that others may write.
    $acl = New-Object -TypeName Security.AccessControl.FileSecurity
    $acl.SetAccessRuleProtection($true, $false)
    foreach ($sid in @('S-1-5-32-544', 'S-1-5-18')) {
        $who = New-Object -TypeName Security.Principal.SecurityIdentifier -ArgumentList $sid
        $rule = New-Object -TypeName Security.AccessControl.FileSystemAccessRule -ArgumentList $who, 'FullControl', 'Allow'
        $acl.AddAccessRule($rule)
    }
    Set-Acl -LiteralPath $keys -AclObject $acl
}

Enable-Administrator
Install-Server
Open-Port 'ContainerLogsPort' 10250
Open-Port 'WindowsExporter' 9182
Open-Port 'OpenSSH-Server-In-TCP' 22
Set-Service -Name 'sshd' -StartupType Automatic
# The first start writes the default configuration.
Start-Service -Name 'sshd'
Set-Access '@KEY@'
Restart-Service -Name 'sshd'
