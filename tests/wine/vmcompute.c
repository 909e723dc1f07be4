/* A stand-in for vmcompute.dll, which Wine lacks: HNSCall as microsoft/hcsshim calls it (internal/hns: four texts, the
   HRESULT first, the response freed by CoTaskMemFree), with the numbers of "HCN Error Code"
   (Virtualization-Documentation) and the fields of hcsshim's hnsnetwork.go and hnsendpoint.go. Networks and endpoints
   lie in a file, one a line, so that they outlive a process; a test that plays a boot takes endpoints away itself.
   What it does not know it answers with 0x803b001b and says so on standard error. */
#include <objbase.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#define STORE L"C:\\windows\\hns.stand-in"
#define FIELD 96
#define MOST 32

#define NETWORK_NOT_FOUND 0x803b0001
#define ENDPOINT_NOT_FOUND 0x803b0002
#define INVALID_NETWORK 0x803b000a
#define NETWORK_EXISTS 0x803b0010
#define ATTACHED_ALREADY 0x803b0014
#define INVALID_REQUEST 0x803b001b

/* A network ('N': kind and prefix) or an endpoint ('E': network and address, state 1 created or 3 attached). */
struct thing { wchar_t sort[2], id[FIELD], name[FIELD], of[FIELD], address[FIELD]; int state; };
static struct thing things[MOST];
static int count;

static void load(void)
{
    FILE *file = _wfopen(STORE, L"r");
    count = 0;
    while (file && count < MOST) {
        struct thing *it = &things[count];
        if (fwscanf(file, L"%1ls\t%95ls\t%95ls\t%95ls\t%95ls\t%d\n", it->sort, it->id, it->name, it->of, it->address,
                    &it->state) != 6)
            break;
        count++;
    }
    if (file)
        fclose(file);
}

static void save(void)
{
    FILE *file = _wfopen(STORE, L"w");
    for (int n = 0; file && n < count; n++)
        fwprintf(file, L"%ls\t%ls\t%ls\t%ls\t%ls\t%d\n", things[n].sort, things[n].id, things[n].name, things[n].of,
                 things[n].address, things[n].state);
    if (file)
        fclose(file);
}

static struct thing *find(wchar_t sort, const wchar_t *id, const wchar_t *name)
{
    for (int n = 0; n < count; n++)
        if (things[n].sort[0] == sort && (!id || !_wcsicmp(things[n].id, id)) && (!name || !_wcsicmp(things[n].name, name)))
            return &things[n];
    return NULL;
}

static void forget(struct thing *it)
{
    *it = things[--count];
}

/* The text of a field, wherever it stands: no two fields of our requests have one name. */
static void field(const wchar_t *json, const wchar_t *name, wchar_t *into)
{
    wchar_t key[FIELD];
    swprintf(key, FIELD, L"\"%ls\":\"", name);
    const wchar_t *at = wcsstr(json, key);
    into[0] = 0;
    if (!at)
        return;
    at += wcslen(key);
    size_t length = wcscspn(at, L"\"");
    if (length < FIELD) {
        wcsncpy(into, at, length);
        into[length] = 0;
    }
}

static struct thing *add(wchar_t sort, const wchar_t *name)
{
    struct thing *it = &things[count++];
    GUID id;
    wchar_t text[FIELD];
    memset(it, 0, sizeof(*it));
    it->sort[0] = sort;
    CoCreateGuid(&id);
    StringFromGUID2(&id, text, FIELD);
    /* Without the braces, as HNS has them. */
    wcsncpy(it->id, text + 1, 36);
    wcsncpy(it->name, name, FIELD - 1);
    return it;
}

static void show(wchar_t *into, size_t room, const struct thing *it)
{
    size_t used = wcslen(into);
    if (it->sort[0] == L'N')
        swprintf(into + used, room - used,
                 L"{\"ID\":\"%ls\",\"Name\":\"%ls\",\"Type\":\"%ls\",\"ManagementIP\":\"10.0.0.4\","
                 L"\"Subnets\":[{\"AddressPrefix\":\"%ls\"}],\"Policies\":[]}",
                 it->id, it->name, it->of, it->address);
    else
        swprintf(into + used, room - used,
                 L"{\"ID\":\"%ls\",\"Name\":\"%ls\",\"VirtualNetwork\":\"%ls\",\"IPAddress\":\"%ls\",\"State\":%d}",
                 it->id, it->name, it->of, it->address, it->state);
}

static HRESULT answer(const wchar_t *method, const wchar_t *path, const wchar_t *request, wchar_t *output, size_t room)
{
    wchar_t sort = !wcsncmp(path, L"/networks", 9) ? L'N' : !wcsncmp(path, L"/endpoints", 10) ? L'E' : 0;
    const wchar_t *rest = path + (sort == L'N' ? 9 : 10);
    wchar_t id[FIELD] = L"", name[FIELD], kind[FIELD], prefix[FIELD], network[FIELD];
    if (!sort)
        return INVALID_REQUEST;
    if (*rest == L'/')
        rest++;
    size_t length = wcscspn(rest, L"/");
    if (length < FIELD)
        wcsncpy(id, rest, length);
    rest += length;
    if (!wcscmp(method, L"GET") && !id[0]) {
        const wchar_t *between = L"";
        wcscpy(output, L"[");
        for (int n = 0; n < count; n++) {
            if (things[n].sort[0] != sort)
                continue;
            wcscat(output, between);
            show(output, room, &things[n]);
            between = L",";
        }
        wcscat(output, L"]");
        return S_OK;
    }
    struct thing *it = id[0] ? find(sort, id, NULL) : NULL;
    if (id[0] && !it)
        return sort == L'N' ? NETWORK_NOT_FOUND : ENDPOINT_NOT_FOUND;
    if (!wcscmp(method, L"DELETE") && it && !*rest) {
        /* A network takes its endpoints with it. */
        for (int n = count - 1; sort == L'N' && n >= 0; n--)
            if (things[n].sort[0] == L'E' && !_wcsicmp(things[n].of, id))
                forget(&things[n]);
        forget(find(sort, id, NULL));
        save();
        return S_OK;
    }
    if (!wcscmp(method, L"POST") && it && sort == L'E' && !wcscmp(rest, L"/attach")) {
        if (!wcsstr(request, L"\"SystemType\":\"Host\"") || !wcsstr(request, L"\"CompartmentId\":1"))
            return INVALID_REQUEST;
        if (it->state == 3)
            return ATTACHED_ALREADY;
        it->state = 3;
        save();
        return S_OK;
    }
    if (wcscmp(method, L"POST") || it || count == MOST)
        return INVALID_REQUEST;
    field(request, L"Name", name);
    field(request, L"Type", kind);
    field(request, L"AddressPrefix", prefix);
    field(request, L"VirtualNetwork", network);
    if (sort == L'N') {
        if (!prefix[0] || !kind[0])
            return INVALID_NETWORK;
        if (find(L'N', NULL, name))
            return NETWORK_EXISTS;
        it = add(L'N', name);
        wcscpy(it->of, kind);
        wcscpy(it->address, prefix);
    } else {
        struct thing *of = find(L'N', network, NULL);
        wchar_t front[FIELD];
        if (!of)
            return NETWORK_NOT_FOUND;
        wcscpy(front, of->address);
        wchar_t *last = wcsrchr(front, L'.');
        if (last)
            *last = 0;
        int taken = 0;
        for (int n = 0; n < count; n++)
            taken += things[n].sort[0] == L'E';
        it = add(L'E', name);
        wcscpy(it->of, network);
        swprintf(it->address, FIELD, L"%ls.%d", front, 2 + taken);
        it->state = 1;
    }
    show(output, room, it);
    save();
    return S_OK;
}

__declspec(dllexport) HRESULT WINAPI HNSCall(const wchar_t *method, const wchar_t *path, const wchar_t *request,
                                             wchar_t **response)
{
    static wchar_t output[MOST * 512], whole[MOST * 512 + 64];
    output[0] = 0;
    load();
    HRESULT result = answer(method, path, request, output, sizeof(output) / sizeof(*output));
    if (result == (HRESULT)INVALID_REQUEST)
        fwprintf(stderr, L"vmcompute.dll, the stand-in, does not know %ls %ls %ls\n", method, path, request);
    /* A refusal has its text filled, too (microsoft/SDN#177). */
    if (FAILED(result))
        swprintf(whole, sizeof(whole) / sizeof(*whole), L"{\"Success\":false,\"Error\":\"stand-in: 0x%08lx\"}",
                 (unsigned long)result);
    else if (output[0])
        swprintf(whole, sizeof(whole) / sizeof(*whole), L"{\"Success\":true,\"Output\":%ls}", output);
    else
        wcscpy(whole, L"{\"Success\":true}");
    *response = CoTaskMemAlloc((wcslen(whole) + 1) * sizeof(wchar_t));
    if (!*response)
        return E_OUTOFMEMORY;
    wcscpy(*response, whole);
    return result;
}
