//! `dormer-host-perform.exe` on a simulated host: it performs each operation that it reads, one in a line.

use std::sync::{Arc, LazyLock};

use dormer_host::ops::{Host as _, OperationRequest};
use dormer_host::paths::BIN;
use dormer_profile::sha256_hex;
use russh::server::{Handle, Msg};
use russh::{Channel, ChannelId, ChannelMsg};

use super::super::computer::Host;
use super::super::ended::Ended;
use super::performing_stand_in;

impl Host {
    /// Whether a command line is the path of that program, where it was uploaded.
    pub(in super::super) fn performs(&self, line: &str) -> bool {
        static SHA256: LazyLock<String> = LazyLock::new(|| sha256_hex(performing_stand_in()));
        let path = line.trim();
        let body = self.state().disk.read_text_path(path).ok();
        path.starts_with(BIN) && body.is_some_and(|body| body.sha256 == *SHA256)
    }

    /// Answers each request of the input by a line, until the input ends.
    pub(in super::super) async fn perform_requests(
        self: &Arc<Self>,
        input: Option<Channel<Msg>>,
        handle: &Handle,
        channel: ChannelId,
    ) -> Ended {
        let Some(mut input) = input else {
            return Ended::of(Vec::new(), 0);
        };
        let mut host = self.interface();
        let mut unread = Vec::new();
        while let Some(message) = input.wait().await {
            match message {
                ChannelMsg::Data { data } => unread.extend_from_slice(&data),
                ChannelMsg::Eof | ChannelMsg::Close => break,
                _ => continue,
            }
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = unread.drain(..=end).collect();
                let Ok(request) = serde_json::from_slice::<OperationRequest>(&line) else {
                    return Ended::saying("no request\r\n", 2);
                };
                let outcome = host.perform(request).await;
                let mut answer = serde_json::to_vec(&outcome).unwrap_or_default();
                answer.push(b'\n');
                if handle.data(channel, answer).await.is_err() {
                    return Ended::of(Vec::new(), 0);
                }
            }
        }
        Ended::of(Vec::new(), 0)
    }
}
