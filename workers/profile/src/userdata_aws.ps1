# The routes to the cloud's own services must outlive the network that containers get. An agent before 2.0.2107 has no
# such task; its image is too old to be a node.
$agent = "$env:ProgramFiles\Amazon\EC2Launch\EC2Launch.exe"
if (Test-Path -LiteralPath $agent) {
    $task = Start-Process -FilePath $agent -ArgumentList @('run-task', 'add-routes', '--persistent') -Wait -PassThru
    if ($task.ExitCode -ne 0) {
        [Console]::Error.WriteLine("EC2Launch did not add its routes: exit code $($task.ExitCode)")
    }
}
