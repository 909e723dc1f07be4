/* A Windows service for tests: the first argument says how it behaves.
     plain      runs until it is told to stop
     linger     reports STOPPED, and its process goes on
     child      has a child that outlives it
     slow       stays STOP_PENDING until the file in its second argument exists
     early      ends before it speaks to the service control manager
     idle       no service at all: waits for ever (the child of `child`) */
#include <windows.h>
#include <wchar.h>

static SERVICE_STATUS_HANDLE handle;
static HANDLE told;
static const wchar_t *manner = L"plain", *gate;
static wchar_t self[MAX_PATH];

static void report(DWORD state, DWORD accepted, DWORD checkpoint, DWORD hint)
{
    SERVICE_STATUS status = { SERVICE_WIN32_OWN_PROCESS, state, accepted, 0, 0, checkpoint, hint };
    SetServiceStatus(handle, &status);
}

static DWORD WINAPI control(DWORD code, DWORD type, void *data, void *context)
{
    (void)type, (void)data, (void)context;
    if (code == SERVICE_CONTROL_STOP) {
        report(SERVICE_STOP_PENDING, 0, 1, 5000);
        SetEvent(told);
    }
    return NO_ERROR;
}

static void idle(void)
{
    Sleep(INFINITE);
}

static void WINAPI serve(DWORD count, wchar_t **arguments)
{
    (void)count, (void)arguments;
    handle = RegisterServiceCtrlHandlerExW(L"", control, NULL);
    if (!wcscmp(manner, L"child")) {
        wchar_t line[MAX_PATH + 16];
        STARTUPINFOW how = { .cb = sizeof(how) };
        PROCESS_INFORMATION child;
        wsprintfW(line, L"\"%s\" idle", self);
        if (CreateProcessW(self, line, NULL, NULL, FALSE, 0, NULL, NULL, &how, &child)) {
            CloseHandle(child.hThread);
            CloseHandle(child.hProcess);
        }
    }
    report(SERVICE_RUNNING, SERVICE_ACCEPT_STOP, 0, 0);
    WaitForSingleObject(told, INFINITE);
    for (DWORD checkpoint = 2; gate && GetFileAttributesW(gate) == INVALID_FILE_ATTRIBUTES; checkpoint++) {
        report(SERVICE_STOP_PENDING, 0, checkpoint, 5000);
        Sleep(50);
    }
    report(SERVICE_STOPPED, 0, 0, 0);
    if (!wcscmp(manner, L"linger"))
        idle();
}

int wmain(int count, wchar_t **arguments)
{
    if (count > 1)
        manner = arguments[1];
    if (count > 2)
        gate = arguments[2];
    if (!wcscmp(manner, L"early"))
        return 7;
    if (!wcscmp(manner, L"idle"))
        idle();
    GetModuleFileNameW(NULL, self, MAX_PATH);
    told = CreateEventW(NULL, TRUE, FALSE, NULL);
    SERVICE_TABLE_ENTRYW services[] = { { (wchar_t *)L"", serve }, { NULL, NULL } };
    return StartServiceCtrlDispatcherW(services) ? 0 : (int)GetLastError();
}
