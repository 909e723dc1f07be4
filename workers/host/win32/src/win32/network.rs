//! Network cards, routes, one page of this host.
#![expect(unsafe_code, reason = "calls Win32")]

use std::{ffi::c_void, net::Ipv4Addr, ptr::null_mut, slice, time::Duration};

use dormer_host::ops::{HttpGet, Interface, InterfaceAddress, Route};
use windows_sys::Win32::{
    Foundation::{
        ERROR_BUFFER_OVERFLOW, ERROR_INVALID_PARAMETER, ERROR_NO_DATA, ERROR_PROC_NOT_FOUND,
    },
    NetworkManagement::{
        IpHelper::{
            FreeMibTable, GAA_FLAG_INCLUDE_GATEWAYS, GetAdaptersAddresses, GetIpForwardTable2,
            IF_TYPE_SOFTWARE_LOOPBACK, IP_ADAPTER_ADDRESSES_LH, MIB_IPFORWARD_ROW2,
            MIB_IPFORWARD_TABLE2,
        },
        Ndis::IfOperStatusUp,
    },
    Networking::WinSock::{
        AF_INET, IN_ADDR, IN_ADDR_0, IpDadStatePreferred, MIB_IPPROTO_NETMGMT, SOCKADDR_IN,
        SOCKADDR_INET, SOCKET_ADDRESS,
    },
};

use super::{
    error::{self, Result},
    late_binding::Library,
};
use crate::http;

/// Room for the cards of most hosts; Windows says when it wants more.
const CARDS_BYTES: u32 = 16 * 1024;

pub(super) fn interfaces() -> Result<Vec<Interface>> {
    let mut bytes = CARDS_BYTES;
    loop {
        let mut buffer = vec![0_u64; (bytes as usize).div_ceil(8)];
        let first = buffer.as_mut_ptr().cast::<IP_ADAPTER_ADDRESSES_LH>();
        // SAFETY: the buffer is as large as is said.
        let result = unsafe {
            GetAdaptersAddresses(
                u32::from(AF_INET),
                GAA_FLAG_INCLUDE_GATEWAYS,
                null_mut(),
                first,
                &raw mut bytes,
            )
        };
        match result {
            0 => {
                // SAFETY: Windows wrote a list of cards into the buffer.
                return Ok(unsafe { cards(first) });
            }
            ERROR_NO_DATA => return Ok(Vec::new()),
            ERROR_BUFFER_OVERFLOW => {}
            other => return Err(error::code(other)),
        }
    }
}

/// # Safety
/// The pointer leads to a list that `GetAdaptersAddresses` wrote.
unsafe fn cards(mut next: *const IP_ADAPTER_ADDRESSES_LH) -> Vec<Interface> {
    let mut found = Vec::new();
    // SAFETY: every pointer is null or leads into the same buffer, by this function's contract.
    while let Some(card) = unsafe { next.as_ref() } {
        let mut addresses = Vec::new();
        let mut address = card.FirstUnicastAddress;
        // SAFETY: as above.
        while let Some(one) = unsafe { address.as_ref() } {
            // SAFETY: as above.
            if let Some(ipv4) = unsafe { ipv4_of(&one.Address) } {
                addresses.push(InterfaceAddress {
                    ipv4,
                    prefix_length: one.OnLinkPrefixLength,
                    preferred: one.DadState == IpDadStatePreferred,
                });
            }
            address = one.Next;
        }
        let mut gateways = Vec::new();
        let mut gateway = card.FirstGatewayAddress;
        // SAFETY: as above.
        while let Some(one) = unsafe { gateway.as_ref() } {
            // SAFETY: as above.
            gateways.extend(unsafe { ipv4_of(&one.Address) });
            gateway = one.Next;
        }
        let mac = &card.PhysicalAddress[..(card.PhysicalAddressLength as usize).min(8)];
        let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02X}")).collect();
        found.push(Interface {
            // SAFETY: both parts of the union are plain numbers.
            index: unsafe { card.Anonymous1.Anonymous.IfIndex },
            // SAFETY: as above.
            luid: unsafe { card.Luid.Value },
            // SAFETY: the name ends with a NUL.
            name: unsafe { super::text::at(card.FriendlyName) },
            up: card.OperStatus == IfOperStatusUp,
            loopback: card.IfType == IF_TYPE_SOFTWARE_LOOPBACK,
            mac: mac.join("-"),
            metric: card.Ipv4Metric,
            addresses,
            gateways,
        });
        next = card.Next;
    }
    found
}

/// # Safety
/// The address is one that Windows wrote.
unsafe fn ipv4_of(address: &SOCKET_ADDRESS) -> Option<String> {
    // SAFETY: it is null or leads to an address of its family, by this function's contract.
    unsafe {
        let family = address.lpSockaddr.as_ref()?.sa_family;
        (family == AF_INET).then(|| {
            let address = &*address.lpSockaddr.cast::<SOCKADDR_IN>();
            text_of(address.sin_addr)
        })
    }
}

fn text_of(address: IN_ADDR) -> String {
    // SAFETY: every part of the union is plain bytes.
    let bytes = unsafe { address.S_un.S_addr }.to_ne_bytes();
    Ipv4Addr::from(bytes).to_string()
}

pub(super) fn routes() -> Result<Vec<Route>> {
    let mut table: *mut MIB_IPFORWARD_TABLE2 = null_mut();
    // SAFETY: the table that is answered is freed below.
    error::status(unsafe { GetIpForwardTable2(AF_INET, &raw mut table) })?;
    // SAFETY: so many rows lie behind the begin of the table.
    let routes = unsafe {
        let rows = slice::from_raw_parts(
            (&raw const (*table).Table).cast::<MIB_IPFORWARD_ROW2>(),
            (*table).NumEntries as usize,
        );
        rows.iter().map(route_of).collect()
    };
    // SAFETY: it was answered above, and has no other reader.
    unsafe { FreeMibTable(table.cast()) };
    Ok(routes)
}

fn route_of(row: &MIB_IPFORWARD_ROW2) -> Route {
    // SAFETY: the table was asked for IPv4.
    let (prefix, next_hop) = unsafe {
        (
            text_of(row.DestinationPrefix.Prefix.Ipv4.sin_addr),
            text_of(row.NextHop.Ipv4.sin_addr),
        )
    };
    Route {
        prefix: format!("{prefix}/{}", row.DestinationPrefix.PrefixLength),
        next_hop,
        interface: row.InterfaceIndex,
        metric: row.Metric,
    }
}

pub(super) fn route_add(route: &Route) -> Result<()> {
    change(route, c"CreateIpForwardEntry2")
}

pub(super) fn route_remove(route: &Route) -> Result<()> {
    change(route, c"DeleteIpForwardEntry2")
}

/// Calls a function that takes a row. Wine 8 has none of these.
fn change(route: &Route, name: &std::ffi::CStr) -> Result<()> {
    let library = Library::load("iphlpapi.dll")?;
    let missing = || error::code(ERROR_PROC_NOT_FOUND);
    let initialize = library
        .function(c"InitializeIpForwardEntry")
        .ok_or_else(missing)?;
    let function = library.function(name).ok_or_else(missing)?;
    let wrong = || error::code(ERROR_INVALID_PARAMETER);
    let (prefix, length) = route.prefix.split_once('/').ok_or_else(wrong)?;
    let prefix = address(prefix).ok_or_else(wrong)?;
    let length = length.parse().map_err(|_| wrong())?;
    let next_hop = address(&route.next_hop).ok_or_else(wrong)?;
    let mut row = MIB_IPFORWARD_ROW2::default();
    // SAFETY: both functions take one pointer to a row (netioapi.h).
    let result = unsafe {
        let initialize: unsafe extern "system" fn(*mut c_void) = std::mem::transmute(initialize);
        let function: unsafe extern "system" fn(*const c_void) -> u32 =
            std::mem::transmute(function);
        initialize((&raw mut row).cast());
        row.InterfaceIndex = route.interface;
        row.DestinationPrefix.Prefix = prefix;
        row.DestinationPrefix.PrefixLength = length;
        row.NextHop = next_hop;
        row.Metric = route.metric;
        row.Protocol = MIB_IPPROTO_NETMGMT;
        function((&raw const row).cast())
    };
    error::status(result)
}

fn address(text: &str) -> Option<SOCKADDR_INET> {
    let address: Ipv4Addr = text.parse().ok()?;
    let mut place = SOCKADDR_INET::default();
    place.Ipv4 = SOCKADDR_IN {
        sin_family: AF_INET,
        sin_addr: IN_ADDR {
            S_un: IN_ADDR_0 {
                S_addr: u32::from_ne_bytes(address.octets()),
            },
        },
        ..Default::default()
    };
    Some(place)
}

pub(super) fn get(ask: &HttpGet) -> Result<u16> {
    http::get(&ask.url, Duration::from_millis(ask.timeout_ms)).map_err(error::code)
}
