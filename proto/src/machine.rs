//! Types of the machine workflow: tasks, outcomes, signals, and facts about a machine.

mod change_text;
mod fact;
mod outcome;
mod refs;
mod sentence;
mod signal;
mod task;

pub use change_text::{DIFFERENCES_MAX, TO_CHANGE, in_brief, to_change};
pub use fact::{
    CLIENT_SIGNER, ConditionFact, CordonedBy, CsrFact, Fact, MachineFact, NodeFact, OTHER_NAME,
    OTHER_NAME_POSSIBLE, OWN_REQUEST, Owner, SERVING_SIGNER, TemplateDifference, Validity,
    same_provider_id,
};
pub use outcome::{Blocker, FenceRefusal, HostFacts, NAMED_ITEMS_MAX, Outcome, RECREATING};
pub use refs::{ChangeClass, HostFence, HostRef, MachineApi, MachineRef, Section, TokenMark};
pub use sentence::{APPROVED_BY_OTHERS, ForeignNode};
pub use signal::Signal;
pub use task::{CsrExpectation, Guard, Task};
