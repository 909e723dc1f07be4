/* A stand-in for dismapi.dll, which Wine lacks: the functions of dismapi.h for the Windows that runs, with the one
   feature Containers. A refusal of what the header demands (a session, its order, the image's name) is loud: the
   process ends with 99. State lies in a file, so that it outlives a process.
   Numbers: dismapi.h; microsoft/WSL, OptionalFeature.cpp (3010); google/glazier#459. */
#include <objbase.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#define STORE L"C:\\windows\\dism.stand-in"
#define ONLINE L"DISM_{53BFAE52-B167-4E2F-A258-0A37B57FF845}"
#define UNKNOWN_FEATURE 0x800f080c
#define STAGED 2
#define INSTALL_PENDING 5
#define SESSION 7

#pragma pack(push, 1)
struct feature_info { const wchar_t *name; DWORD state; const wchar_t *display, *description; DWORD restart; void *custom;
                      UINT customs; };
#pragma pack(pop)

static int initialized, opened;

static void must(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "dismapi.dll, the stand-in: %s\n", what);
        ExitProcess(99);
    }
}

static DWORD state(void)
{
    DWORD found = STAGED;
    FILE *file = _wfopen(STORE, L"r");
    if (file) {
        if (fwscanf(file, L"%lu", &found) != 1)
            found = STAGED;
        fclose(file);
    }
    return found;
}

__declspec(dllexport) HRESULT WINAPI DismInitialize(int level, const wchar_t *log, const wchar_t *scratch)
{
    must(!initialized && level >= 0 && level <= 2 && !log && !scratch, "DismInitialize");
    initialized = 1;
    return S_OK;
}

__declspec(dllexport) HRESULT WINAPI DismOpenSession(const wchar_t *image, const wchar_t *windows, const wchar_t *drive,
                                                     UINT *session)
{
    must(initialized && !opened && !wcscmp(image, ONLINE) && !windows && !drive, "DismOpenSession");
    opened = 1;
    *session = SESSION;
    return S_OK;
}

__declspec(dllexport) HRESULT WINAPI DismCloseSession(UINT session)
{
    must(opened && session == SESSION, "DismCloseSession");
    opened = 0;
    return S_OK;
}

__declspec(dllexport) HRESULT WINAPI DismShutdown(void)
{
    must(initialized && !opened, "DismShutdown");
    initialized = 0;
    return S_OK;
}

__declspec(dllexport) HRESULT WINAPI DismGetFeatureInfo(UINT session, const wchar_t *name, const wchar_t *identifier,
                                                        int kind, struct feature_info **info)
{
    must(opened && session == SESSION && !identifier && kind == 0, "DismGetFeatureInfo");
    if (_wcsicmp(name, L"Containers"))
        return UNKNOWN_FEATURE;
    *info = CoTaskMemAlloc(sizeof(**info));
    memset(*info, 0xee, sizeof(**info));
    (*info)->state = state();
    return S_OK;
}

__declspec(dllexport) HRESULT WINAPI DismDelete(void *structure)
{
    must(structure != NULL, "DismDelete");
    CoTaskMemFree(structure);
    return S_OK;
}

__declspec(dllexport) HRESULT WINAPI DismEnableFeature(UINT session, const wchar_t *name, const wchar_t *identifier,
                                                       int kind, BOOL limit, const wchar_t **sources, UINT count,
                                                       BOOL all, HANDLE cancel, void *progress, void *user)
{
    must(opened && session == SESSION && !identifier && kind == 0, "DismEnableFeature");
    must(!limit && !sources && !count && all && !cancel && !progress && !user, "DismEnableFeature, options");
    if (_wcsicmp(name, L"Containers"))
        return UNKNOWN_FEATURE;
    FILE *file = _wfopen(STORE, L"w");
    must(file != NULL, "its store");
    fwprintf(file, L"%d", INSTALL_PENDING);
    fclose(file);
    return 3010;
}
