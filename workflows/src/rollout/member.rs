//! Member of a rollout: the knowledge about one Machine, in at most 64 bytes.

use dormer_proto::{
    id::{LeaseToken, Timestamp},
    rollout::MemberReport,
};
use serde::{Deserialize, Serialize};

/// Property of a member: a bit of [`Member::flags`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Flag {
    /// Its run enrolled.
    Enrolled = 1,
    /// A full list shows it with a Node, and nothing is granted before it enrolled.
    Awaited = 1 << 1,
    /// Its owner's newest fact names it.
    Listed = 1 << 2,
    /// Its owner's facts say that it is being deleted.
    OwnerDeletes = 1 << 3,
    /// It has, or had, a Node that served.
    HadNode = 1 << 4,
    /// It reported that it is unavailable.
    Unavailable = 1 << 5,
    Joined = 1 << 6,
    Failed = 1 << 7,
    /// It reports that it is being deleted; or it left, and is presumed gone.
    Deleting = 1 << 8,
    /// It carries an open token that an earlier store of dormer granted.
    Open = 1 << 9,
    // 1 << 10 is used up: older builds kept there that a lease over the limit was given back.
    /// It has ended a slot or a gap, and ends no other.
    Claimed = 1 << 11,
    /// The gap that its deletion leaves has ended already.
    GapEnded = 1 << 12,
    /// It was asked to enrol.
    Asked = 1 << 13,
    /// It was asked to enrol and has not answered.
    Asking = 1 << 14,
    /// Its run has closed: it will not be Joined any more, though its owner may have it still.
    Left = 1 << 15,
    /// The change that it needs is not allowed now.
    ChangeNotAllowed = 1 << 16,
    /// Another client cordoned its Node.
    Cordoned = 1 << 17,
    /// Its node has not served for the pool's `repairAfter`.
    Repair = 1 << 18,
    /// A person requested the change that it waits for.
    RequestedByPerson = 1 << 19,
    // 1 << 20 to 1 << 24: the number of what keeps its host from being compared, see `Member::trouble`.
    /// Left before it ever served, because its Machine is to be ignored. Not a replacement until it serves.
    NeverServed = 1 << 25,
    /// It withdrew a request or returned a lease that this rollout does not know, and has not enrolled.
    Stranger = 1 << 26,
}

/// Position of the trouble's number among the flags.
const TROUBLE_AT: u32 = 20;
/// Most kinds of trouble with a number of their own.
pub(super) const TROUBLES_MAX: u8 = 31;
const TROUBLE_BITS: u32 = (TROUBLES_MAX as u32) << TROUBLE_AT;

/// Knowledge about one Machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Member {
    /// Its owner's number; 0: it has none.
    pub owner: u16,
    /// When it was created, by the API server's clock.
    pub created: Timestamp,
    /// Properties; see [`Flag`].
    pub flags: u32,
    /// Tick of its request for the lease; 0: it wants none.
    pub wants: u64,
    /// The tick at which it was first known to serve; 0: never.
    pub served: u64,
    /// The open token that it carries, if any.
    pub token: LeaseToken,
}

/// A member as stored: without field names.
type Row = (u16, u64, u32, u64, u64, u64);

impl From<Row> for Member {
    fn from((owner, created, flags, wants, served, token): Row) -> Self {
        let created = Timestamp(created);
        let token = LeaseToken(token);
        Self {
            owner,
            created,
            flags,
            wants,
            served,
            token,
        }
    }
}

impl From<Member> for Row {
    fn from(m: Member) -> Self {
        (m.owner, m.created.0, m.flags, m.wants, m.served, m.token.0)
    }
}

impl Member {
    /// Whether `flag` is set.
    #[must_use]
    pub fn is(&self, flag: Flag) -> bool {
        self.flags & flag as u32 != 0
    }

    pub(super) fn set(&mut self, flag: Flag, on: bool) {
        if on {
            self.flags |= flag as u32;
        } else {
            self.flags &= !(flag as u32);
        }
    }

    /// Number of what keeps its host from being compared, from 1 (`State::troubles`); 0: nothing does.
    #[must_use]
    pub fn finding_number(&self) -> u8 {
        u8::try_from((self.flags & TROUBLE_BITS) >> TROUBLE_AT).unwrap_or(0)
    }

    pub(super) fn set_trouble(&mut self, number: u8) {
        let number = u32::from(number.min(TROUBLES_MAX)) << TROUBLE_AT;
        self.flags = (self.flags & !TROUBLE_BITS) | number;
    }

    /// Whether nothing but its own signal says that it exists: no report, no owner and no list names it. An earlier build
    /// leaves the flag to a member that enrols.
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        let known = [Flag::Enrolled, Flag::Listed, Flag::Awaited];
        self.is(Flag::Stranger) && !known.into_iter().any(|flag| self.is(flag))
    }

    /// Whether its Machine is being deleted, by any report.
    #[must_use]
    pub fn leaves(&self) -> bool {
        self.is(Flag::Deleting) || self.is(Flag::OwnerDeletes)
    }

    /// Whether it counts against the limit by itself.
    #[must_use]
    pub fn unavailable(&self) -> bool {
        let away = self.is(Flag::Unavailable) || (self.is(Flag::HadNode) && self.leaves());
        self.is(Flag::Enrolled) && (away || self.is(Flag::Open))
    }

    /// Whether it does not serve now. That alone allows no repair, because cordons and partitions end.
    #[must_use]
    pub fn away(&self) -> bool {
        self.unavailable() || !self.is(Flag::HadNode)
    }

    /// Whether it may be granted over the limit: it has not served for long, or never did, and is not kept cordoned.
    #[must_use]
    pub fn repairable(&self) -> bool {
        let long_gone = self.is(Flag::Repair) && self.unavailable();
        (long_gone || !self.is(Flag::HadNode)) && !self.is(Flag::Cordoned)
    }

    /// Whether it waits for the lease.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.wants != 0 && self.is(Flag::Enrolled) && !self.leaves()
    }

    /// Notes that its run has closed; `gone`: with its Machine. Its owner's facts stay.
    pub(super) fn left(&mut self, gone: bool) {
        let gone = gone || (self.is(Flag::Enrolled) && self.is(Flag::Deleting));
        let kept = self.flags & (Flag::Listed as u32 | Flag::OwnerDeletes as u32);
        let owner = self.owner;
        let created = self.created;
        *self = Self {
            owner,
            created,
            flags: kept,
            ..Self::default()
        };
        self.set(Flag::Deleting, gone);
        self.set(Flag::Left, true);
    }

    /// Applies its report at `tick`.
    pub(super) fn update(&mut self, report: &MemberReport, tick: u64) {
        let open = report.token.filter(|mark| mark.open);
        self.created = report.created;
        self.set(Flag::Enrolled, true);
        self.set(Flag::HadNode, report.had_node);
        self.set(Flag::Unavailable, report.unavailable);
        self.set(Flag::Joined, report.joined);
        self.set(Flag::Failed, report.failed);
        self.set(Flag::Deleting, report.deleting);
        self.set(Flag::Open, open.is_some());
        self.token = open.map(|mark| mark.token).unwrap_or_default();
        self.set(Flag::ChangeNotAllowed, report.barred);
        self.set(Flag::Cordoned, report.cordoned);
        self.set(Flag::Repair, report.repair);
        self.set(Flag::RequestedByPerson, report.by_request);
        self.set(Flag::Asking, false);
        self.set(Flag::Left, false);
        self.set(Flag::NeverServed, false);
        self.set(Flag::Stranger, false);
        // A machine with a Node enrolled when it was adopted, so its report is complete.
        if report.had_node || report.joined || report.failed || report.deleting {
            self.set(Flag::Awaited, false);
        }
        if self.served == 0 && (report.joined || report.had_node) {
            self.served = tick;
        }
        if self.leaves() {
            self.wants = 0;
        }
    }
}
