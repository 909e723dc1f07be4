//! A command that answers each line of its input with one line.

use super::SshError;
use russh::{Channel, ChannelStream, client};
use std::time::Duration;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    time::timeout,
};

/// How every answer begins. A shell's profile may write other lines.
const ANSWER: u8 = b'{';

/// A running command. It ends with its input, when this is dropped.
pub struct Conversation {
    stream: BufReader<ChannelStream<client::Msg>>,
    address: String,
    /// Longest answer, in bytes.
    line_max: u64,
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Conversation({})", self.address)
    }
}

impl Conversation {
    pub(super) fn over(channel: Channel<client::Msg>, address: &str, line_max: u64) -> Self {
        Self {
            stream: BufReader::new(channel.into_stream()),
            address: address.to_owned(),
            line_max,
        }
    }

    /// Sends one line, and waits for its answer at most this long.
    ///
    /// # Errors
    /// The connection broke, the command ended, or it answers too late or without end.
    pub async fn ask(&mut self, line: &[u8], within: Duration) -> Result<Vec<u8>, SshError> {
        let said = format!("a command said nothing for {} s", within.as_secs());
        let late = SshError::Silent(self.address.clone(), said);
        timeout(within, self.answer(line))
            .await
            .unwrap_or(Err(late))
    }

    async fn answer(&mut self, line: &[u8]) -> Result<Vec<u8>, SshError> {
        let Self {
            stream,
            address,
            line_max,
        } = self;
        let broken =
            |error: &dyn std::fmt::Display| SshError::Broken(address.clone(), error.to_string());
        let sent = [line, b"\n"].concat();
        stream.write_all(&sent).await.map_err(|e| broken(&e))?;
        stream.flush().await.map_err(|e| broken(&e))?;
        loop {
            let mut read = Vec::new();
            let mut limited = (&mut *stream).take(*line_max);
            let count = limited.read_until(b'\n', &mut read).await;
            match count.map_err(|e| broken(&e))? {
                0 => return Err(broken(&"the command ended before its answer")),
                _ if read.last() != Some(&b'\n') => {
                    return Err(SshError::Endless(address.clone(), "answer", *line_max));
                }
                _ if read.first() == Some(&ANSWER) => return Ok(read),
                _ => {}
            }
        }
    }

    /// Ends the command by the end of its input, and waits until it has ended.
    ///
    /// # Errors
    /// The connection broke, or the command does not end in this time.
    pub async fn end(mut self, within: Duration) -> Result<(), SshError> {
        let broken = |error: String| SshError::Broken(self.address.clone(), error);
        let ended = async {
            self.stream.shutdown().await?;
            let mut rest = [0; 1 << 10];
            while self.stream.read(&mut rest).await? > 0 {}
            Ok::<(), std::io::Error>(())
        };
        match timeout(within, ended).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(broken(error.to_string())),
            Err(_) => Err(broken("a command does not end with its input".into())),
        }
    }
}
