//! Firewall rules, by COM. `Item`, not enumeration: a host has hundreds of rules.
#![expect(unsafe_code, reason = "calls COM")]

use dormer_host::ops::{FirewallPolicy, FirewallRule};
use windows::{
    Win32::{
        Foundation::VARIANT_BOOL,
        NetworkManagement::WindowsFirewall::{
            INetFwPolicy2, INetFwRule, INetFwRules, NET_FW_ACTION, NET_FW_RULE_DIRECTION,
            NetFwPolicy2, NetFwRule,
        },
        System::Com::{CLSCTX_INPROC_SERVER, CoCreateInstance},
    },
    core::BSTR,
};

use super::{
    com,
    error::{self, Result},
};

fn policy() -> Result<INetFwPolicy2> {
    com::enter()?;
    // SAFETY: COM is there, and this is the class' own interface.
    unsafe { CoCreateInstance(&NetFwPolicy2, None, CLSCTX_INPROC_SERVER) }
        .map_err(|error| error::com(&error))
}

fn rules() -> Result<INetFwRules> {
    // SAFETY: the object lives.
    unsafe { policy()?.Rules() }.map_err(|error| error::com(&error))
}

fn item(name: &str) -> Result<INetFwRule> {
    // SAFETY: the object lives.
    unsafe { rules()?.Item(&BSTR::from(name)) }.map_err(|error| error::com(&error))
}

pub(super) fn read(name: &str) -> Result<FirewallRule> {
    let rule = item(name)?;
    // SAFETY: the object lives.
    let read = || unsafe {
        Ok(FirewallRule {
            name: rule.Name()?.to_string(),
            description: rule.Description()?.to_string(),
            protocol: rule.Protocol()?,
            ports: rule.LocalPorts()?.to_string(),
            direction: rule.Direction()?.0,
            action: rule.Action()?.0,
            profiles: rule.Profiles()?,
            enabled: rule.Enabled()?.as_bool(),
            remote: rule.RemoteAddresses()?.to_string(),
            program: rule.ApplicationName()?.to_string(),
        })
    };
    read().map_err(|error: windows::core::Error| error::com(&error))
}

/// Sets every property but the name.
fn set(object: &INetFwRule, rule: &FirewallRule) -> windows::core::Result<()> {
    // SAFETY: the object lives.
    unsafe {
        object.SetDescription(&BSTR::from(&rule.description))?;
        // A change of protocol clears the ports, and ports without one are refused.
        object.SetProtocol(rule.protocol)?;
        if !rule.ports.is_empty() {
            object.SetLocalPorts(&BSTR::from(&rule.ports))?;
        }
        if !rule.program.is_empty() {
            object.SetApplicationName(&BSTR::from(&rule.program))?;
        }
        object.SetRemoteAddresses(&BSTR::from(&rule.remote))?;
        object.SetDirection(NET_FW_RULE_DIRECTION(rule.direction))?;
        object.SetProfiles(rule.profiles)?;
        object.SetAction(NET_FW_ACTION(rule.action))?;
        object.SetEnabled(VARIANT_BOOL::from(rule.enabled))
    }
}

pub(super) fn add(rule: &FirewallRule) -> Result<()> {
    let rules = rules()?;
    // SAFETY: COM is there, and this is the class' own interface.
    let add = || unsafe {
        let object: INetFwRule = CoCreateInstance(&NetFwRule, None, CLSCTX_INPROC_SERVER)?;
        object.SetName(&BSTR::from(&rule.name))?;
        set(&object, rule)?;
        rules.Add(&object)
    };
    add().map_err(|error: windows::core::Error| error::com(&error))
}

pub(super) fn change(rule: &FirewallRule) -> Result<()> {
    set(&item(&rule.name)?, rule).map_err(|error| error::com(&error))
}

pub(super) fn remove(name: &str) -> Result<()> {
    // SAFETY: the object lives.
    unsafe { rules()?.Remove(&BSTR::from(name)) }.map_err(|error| error::com(&error))
}

pub(super) fn policy_read() -> Result<FirewallPolicy> {
    // SAFETY: the object lives.
    let state = unsafe { policy()?.LocalPolicyModifyState() };
    match state.map_err(|error| error::com(&error))?.0 {
        0 => Ok(FirewallPolicy::Ok),
        1 => Ok(FirewallPolicy::Overridden),
        2 => Ok(FirewallPolicy::InboundBlocked),
        _ => Err(error::code(
            windows_sys::Win32::Foundation::ERROR_INVALID_DATA,
        )),
    }
}
