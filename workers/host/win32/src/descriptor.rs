//! A self-relative security descriptor, as Windows writes it into memory: owner and access list.
//! Layout: MS-DTYP, 2.4.2 (SID), 2.4.4 (ACE), 2.4.5 (ACL) and 2.4.6 (`SECURITY_DESCRIPTOR`).

use dormer_host::ops::{Ace, Security};

/// `SE_DACL_PRESENT`.
const LIST_PRESENT: u16 = 0x4;
/// `SE_DACL_PROTECTED`.
const LIST_PROTECTED: u16 = 0x1000;
/// `ACCESS_ALLOWED_ACE_TYPE`.
const ALLOWED: u8 = 0;
/// `ACCESS_DENIED_ACE_TYPE`.
const DENIED: u8 = 1;

/// Owner and entries; none when the bytes are no descriptor. Entries that neither allow nor deny are left out.
pub fn parse(bytes: &[u8]) -> Option<Security> {
    let control = u16_at(bytes, 2)?;
    let owner = sid(bytes.get(usize::try_from(u32_at(bytes, 4)?).ok()?..)?)?;
    let list = usize::try_from(u32_at(bytes, 16)?).ok()?;
    let entries = if control & LIST_PRESENT == 0 || list == 0 {
        None
    } else {
        Some(entries(bytes.get(list..)?)?)
    };
    Some(Security {
        owner,
        protected: control & LIST_PROTECTED != 0,
        entries,
    })
}

fn entries(list: &[u8]) -> Option<Vec<Ace>> {
    let count = u16_at(list, 4)?;
    let mut rest = list.get(8..)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let size = usize::from(u16_at(rest, 2)?);
        let entry = rest.get(..size)?;
        if matches!(*entry.first()?, ALLOWED | DENIED) {
            entries.push(Ace {
                allow: entry[0] == ALLOWED,
                sid: sid(entry.get(8..)?)?,
                mask: u32_at(entry, 4)?,
                flags: entry[1],
            });
        }
        rest = rest.get(size.max(4)..)?;
    }
    Some(entries)
}

/// A SID as text: `S-1-5-32-544`.
fn sid(bytes: &[u8]) -> Option<String> {
    let [revision, count, authority @ ..] = bytes.get(..8)? else {
        return None;
    };
    let authority = authority
        .iter()
        .fold(0_u64, |sum, b| sum << 8 | u64::from(*b));
    let mut text = format!("S-{revision}-{authority}");
    for place in 0..usize::from(*count) {
        text.push_str(&format!("-{}", u32_at(bytes, 8 + 4 * place)?));
    }
    Some(text)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `S-1-5-32-544` and `S-1-5-18`, by MS-DTYP 2.4.2.
    const ADMINISTRATORS: &[u8] = &[1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0];
    const SYSTEM: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0];

    fn entry(kind: u8, flags: u8, mask: u32, sid: &[u8]) -> Vec<u8> {
        let size = 8 + sid.len() as u16;
        let mut bytes = vec![kind, flags];
        bytes.extend(size.to_le_bytes());
        bytes.extend(mask.to_le_bytes());
        bytes.extend(sid);
        bytes
    }

    fn descriptor(control: u16, entries: &[Vec<u8>]) -> Vec<u8> {
        let list = entries.concat();
        let mut bytes = vec![1, 0];
        bytes.extend(control.to_le_bytes());
        for offset in [20_u32, 0, 0, 36] {
            bytes.extend(offset.to_le_bytes());
        }
        bytes.extend(ADMINISTRATORS);
        bytes.extend([2, 0]);
        bytes.extend((8 + list.len() as u16).to_le_bytes());
        bytes.extend((entries.len() as u16).to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(list);
        bytes
    }

    #[test]
    fn owner_and_entries_are_read_in_their_order() {
        let bytes = descriptor(
            0x9004,
            &[
                entry(1, 0, 2, SYSTEM),
                // An audit entry says nothing about access.
                entry(2, 0, 2, SYSTEM),
                entry(0, 0x13, 0x001f_01ff, ADMINISTRATORS),
            ],
        );
        let ace = |allow, sid: &str, mask, flags| Ace {
            allow,
            sid: sid.into(),
            mask,
            flags,
        };
        let wanted = Security {
            owner: "S-1-5-32-544".into(),
            protected: true,
            entries: Some(vec![
                ace(false, "S-1-5-18", 2, 0),
                ace(true, "S-1-5-32-544", 0x001f_01ff, 0x13),
            ]),
        };
        assert_eq!(parse(&bytes), Some(wanted));
    }

    #[test]
    fn no_list_is_not_an_empty_one() {
        let without = parse(&descriptor(0x8000, &[])).expect("a descriptor");
        assert_eq!((without.entries, without.protected), (None, false));
        let empty = parse(&descriptor(0x8004, &[])).expect("a descriptor");
        assert_eq!(empty.entries, Some(vec![]));
    }

    #[test]
    fn a_cut_descriptor_is_none() {
        let whole = descriptor(0x8004, &[entry(0, 0, 1, SYSTEM)]);
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
    }
}
