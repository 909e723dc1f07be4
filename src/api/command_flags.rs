//! Flags of suggested commands, where a person's own settings lead to another dormer and another cluster: those of a
//! demonstration.

use super::Api;
use axum::{extract::State as Of, http::HeaderValue, response::Response};
use dormer_views::{address::KUBECONFIG_HEADER, explain::Step};
use std::sync::Arc;

/// Where suggested commands have to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFlags {
    /// URL of this dormer, for its own commands.
    pub server: String,
    /// Absolute path of a kubeconfig, for kubectl's.
    pub kubeconfig: String,
}

impl CommandFlags {
    /// Adds the flags to the steps' commands.
    pub fn reach<'a>(&self, steps: impl IntoIterator<Item = &'a mut Step>) {
        let server = ["--server".to_owned(), self.server.clone()];
        let kubeconfig = ["--kubeconfig".to_owned(), self.kubeconfig.clone()];
        for step in steps {
            step.reach(&["dormer"], &server, &kubeconfig);
        }
    }
}

impl Api {
    /// Sets the flags that commands on pages get, and that clients receive. The first call counts.
    pub fn set_command_flags(&self, flags: CommandFlags) {
        let _ = self.command_flags.set(flags);
    }

    /// Flags of suggested commands. `None`: a person's own settings lead here.
    pub fn command_flags(&self) -> Option<&CommandFlags> {
        self.command_flags.get()
    }
}

/// Names the kubeconfig in an answer.
pub(super) async fn named(Of(api): Of<Arc<Api>>, mut response: Response) -> Response {
    let flags = api.command_flags();
    // A path with other characters than ASCII is not sent.
    let path = flags.and_then(|it| HeaderValue::from_str(&it.kubeconfig).ok());
    if let Some(path) = path {
        response.headers_mut().insert(KUBECONFIG_HEADER, path);
    }
    response
}
