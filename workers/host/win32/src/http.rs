//! One page of this host, asked for in plain HTTP/1.1: what a kubelet answers on its health port.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// `ERROR_INVALID_PARAMETER`: no address of this host.
pub const NO_ADDRESS: u32 = 87;
/// `ERROR_INVALID_DATA`: no HTTP.
pub const NO_HTTP: u32 = 13;
/// `WSAETIMEDOUT`.
pub const TOO_LATE: u32 = 10_060;
/// `WSAECONNRESET`.
pub const CUT: u32 = 10_054;
/// `WSAECONNREFUSED`.
pub const REFUSED: u32 = 10_061;
/// Bytes in which the first line of an answer must end.
const LINE_MAX: usize = 1024;

/// Asks for a page and answers its status.
///
/// # Errors
/// One of this module's numbers, or what Windows said.
pub fn get(url: &str, within: Duration) -> Result<u16, u32> {
    let (address, host, path) = parts(url).ok_or(NO_ADDRESS)?;
    let until = Instant::now() + within;
    let mut stream = TcpStream::connect_timeout(&address, left(until)?).map_err(number)?;
    stream
        .set_write_timeout(Some(left(until)?))
        .map_err(number)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(number)?;
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < LINE_MAX {
        stream
            .set_read_timeout(Some(left(until)?))
            .map_err(number)?;
        let mut piece = [0; 256];
        match stream.read(&mut piece).map_err(number)? {
            0 => break,
            count => line.extend(&piece[..count]),
        }
    }
    if line.is_empty() {
        return Err(CUT);
    }
    status(&line).ok_or(NO_HTTP)
}

/// The time that is left; none is too late.
fn left(until: Instant) -> Result<Duration, u32> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(TOO_LATE),
        left => Ok(left),
    }
}

/// Address, `Host` header and path of a URL of this host.
fn parts(url: &str) -> Option<(SocketAddr, &str, &str)> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let at = host.rfind(':').filter(|at| !host[*at..].contains(']'));
    let (name, port) = match at {
        Some(at) => (&host[..at], host[at + 1..].parse().ok()?),
        None => (host, 80),
    };
    let ip = match name {
        "127.0.0.1" | "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        "[::1]" => IpAddr::V6(Ipv6Addr::LOCALHOST),
        _ => return None,
    };
    Some((SocketAddr::new(ip, port), host, path))
}

/// The status in the first line: `HTTP/1.1 200 OK`.
fn status(line: &[u8]) -> Option<u16> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    words.next()?.strip_prefix("HTTP/1.")?;
    let status = words.next()?.parse().ok()?;
    (100..600).contains(&status).then_some(status)
}

/// The number for an error of a socket, the same on every platform.
fn number(error: io::Error) -> u32 {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => REFUSED,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => TOO_LATE,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => CUT,
        _ => error
            .raw_os_error()
            .and_then(|code| u32::try_from(code).ok())
            .unwrap_or(NO_HTTP),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A server that reads the request's first piece, answers this and closes; its address.
    fn server(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer);
        });
        format!("http://127.0.0.1:{port}/healthz")
    }

    #[test]
    fn the_status_is_answered() {
        let ok = server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(get(&ok, LONG), Ok(200));
        assert_eq!(get(&server(b"HTTP/1.0 503 \n"), LONG), Ok(503));
    }

    #[test]
    fn an_answer_without_http_and_an_empty_one_are_errors() {
        assert_eq!(get(&server(b"SSH-2.0-x\r\n"), LONG), Err(NO_HTTP));
        assert_eq!(get(&server(b"HTTP/1.1 twenty\r\n"), LONG), Err(NO_HTTP));
        assert_eq!(get(&server(b""), LONG), Err(CUT));
    }

    #[test]
    fn nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        assert_eq!(get(&format!("http://localhost:{port}"), LONG), Err(REFUSED));
    }

    #[test]
    fn a_server_that_stays_silent_is_too_late() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
        assert_eq!(get(&url, Duration::from_millis(50)), Err(TOO_LATE));
    }

    #[test]
    fn only_this_host_is_asked() {
        for url in [
            "https://127.0.0.1/",
            "http://10.0.0.1/",
            "http://127.0.0.1.example/",
            "http://127.0.0.1:99999/",
            "http://127.0.0.1/ HTTP/1.1\r\nX: y",
            "",
        ] {
            assert_eq!(get(url, LONG), Err(NO_ADDRESS), "{url}");
        }
        let (address, host, path) = parts("http://[::1]:10248/healthz").expect("an address");
        assert_eq!(address.to_string(), "[::1]:10248");
        assert_eq!((host, path), ("[::1]:10248", "/healthz"));
    }
}
