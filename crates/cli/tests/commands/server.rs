//! A small HTTP server on the loopback address whose answers a test writes itself, faults included.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// What the binary asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The start of the range asked for.
    pub fn range_start(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// What the server answers: `body` is sent as it is, whatever the headers promise, and then the line is cut.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn status(status: u16) -> Reply {
        Reply { status, headers: vec![("content-length", "0".into())], body: Vec::new() }
    }

    /// 200 with the whole of `file`.
    pub fn whole(file: &[u8]) -> Reply {
        Reply { status: 200, headers: vec![("content-length", file.len().to_string())], body: file.to_vec() }
    }

    /// 206 with `file` from `start` on.
    pub fn rest(file: &[u8], start: usize) -> Reply {
        let range = format!("bytes {start}-{}/{}", file.len() - 1, file.len());
        Reply { status: 206, ..Reply::whole(&file[start..]) }.with("content-range", &range)
    }

    pub fn redirect(location: &str) -> Reply {
        Reply::status(302).with("location", location)
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Reply {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Breaks off after `length` bytes of the body.
    pub fn cut(mut self, length: usize) -> Reply {
        self.body.truncate(length);
        self
    }
}

pub struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers request number `n` (from 0) with `answer(n, request)`.
    pub fn start(answer: impl Fn(usize, &Request) -> Reply + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A connection without a request is the server's own, made to end it.
                let stream = stream.expect("a connection");
                let Some(request) = read_request(&stream) else { return };
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request.clone());
                    seen.len() - 1
                };
                send(stream, answer(number, &request));
            }
        });
        Server { address, requests, thread: Some(thread) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(TcpStream::connect(self.address));
        let ended = self.thread.take().expect("one drop").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server's thread panicked");
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    for line in lines {
        let line = line.ok()?;
        match line.split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => break,
        }
    }
    Some(Request { path, headers })
}

/// The client may leave early, so a failed write is its business.
fn send(mut stream: TcpStream, reply: Reply) {
    let mut head = format!("HTTP/1.1 {} Scripted\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&reply.body);
}
