//! `dormer run`: the real thing, all roles in one process or some of them.

pub(crate) mod roles;
