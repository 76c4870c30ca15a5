//! `top` in a terminal: it takes the terminal, and gives it back whatever happens.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{
    fs::File,
    io::{Read, Write},
    net::TcpListener,
    os::fd::OwnedFd,
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};

const BINARY: &str = env!("CARGO_BIN_EXE_kubectl-compute");

/// Sequences that take the screen, and give it back.
const TAKE: &str = "\x1b[?1049h";
const GIVE_BACK: &str = "\x1b[?1049l";

/// A program in a terminal of 100 columns and 30 lines.
struct InTerminal {
    child: Child,
    keys: File,
    /// The program's side.
    side: File,
    before: Termios,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl InTerminal {
    fn start(command: &mut Command) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        // The program must not have the other side too: it would never hang up.
        fcntl_setfd(&terminal, FdFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let path = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let side = File::options().read(true).write(true).open(path).unwrap();
        tcsetwinsize(&side, Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let before = tcgetattr(&side).unwrap();
        let fd = || OwnedFd::from(side.try_clone().unwrap());
        command.env("TERM", "xterm").env_remove("NO_COLOR").stdin(fd()).stdout(fd()).stderr(fd());
        let child = command.spawn().unwrap();
        let keys = File::from(terminal);
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let (mut output, to) = (keys.try_clone().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut part) {
                to.lock().unwrap().extend_from_slice(&part[..count]);
            }
        });
        Self { child, keys, side, before, shown }
    }

    fn top(test: &str, args: &[&str]) -> Self {
        let config = std::env::temp_dir().join(format!("kubectl-compute-top-{test}-{}", std::process::id()));
        let content = "apiVersion: v1\nkind: Config\ncurrent-context: shop\n\
                    clusters: [{ name: c, cluster: { server: \"http://127.0.0.1:1\" } }]\n\
                    users: [{ name: u, user: {} }]\n\
                    contexts: [{ name: shop, context: { cluster: c, user: u } }]\n";
        std::fs::write(&config, content).unwrap();
        let mut command = Command::new(BINARY);
        command.env("KUBECONFIG", config).env_remove("COMPUTE_HUB_CONTEXT").env_remove("COMPUTE_MANAGER_CONTEXT");
        Self::start(command.env_remove("COMPUTE_MANAGER_URL").arg("top").args(args))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until the output has these words.
    fn shows(&self, words: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.text().contains(words) {
            assert!(Instant::now() < until, "{words:?} is not shown: {:?}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end. The terminal must be as it was.
    fn ends_and_gives_back(mut self) -> (ExitStatus, String) {
        let until = Instant::now() + Duration::from_secs(10);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > until {
                self.child.kill().unwrap();
                panic!("it does not end: {:?}", self.text());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        std::thread::sleep(Duration::from_millis(100));
        let (text, after) = (self.text(), tcgetattr(&self.side).unwrap());
        assert!(text.contains(TAKE), "it had the screen: {text:?}");
        assert!(text.rfind(GIVE_BACK) > text.rfind(TAKE), "the screen is given back: {text:?}");
        assert!(text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "the cursor is shown: {text:?}");
        let modes =
            |termios: &Termios| (termios.input_modes, termios.output_modes, termios.control_modes, termios.local_modes);
        assert_eq!(modes(&after), modes(&self.before), "keys are read as before");
        (status, text)
    }
}

impl Drop for InTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

#[test]
fn keys_end_it_and_the_terminal_is_as_before() {
    for keys in ["q", "\x1b", "\x03", "?mq"] {
        let mut top = InTerminal::top("keys", &[]);
        top.shows("refresh");
        top.press(keys);
        let (status, text) = top.ends_and_gives_back();
        assert_eq!(status.code(), Some(0), "{keys:?}: {text:?}");
    }
}

#[test]
fn signals_end_it_and_the_terminal_is_as_before() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let top = InTerminal::top("signals", &[]);
        top.shows("refresh");
        kill_process(Pid::from_child(&top.child), signal).unwrap();
        let (status, text) = top.ends_and_gives_back();
        assert_eq!(status.code(), Some(0), "{signal:?}: {text:?}");
    }
}

#[test]
fn manager_that_never_answers_does_not_hold_up_the_keys() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let mut top = InTerminal::top("slow", &["--manager-url", &url]);
    top.shows("waiting: no answer for");
    top.shows("give --hub-context");
    let began = Instant::now();
    top.press("?");
    // Only cells that change are written, so the words of a line come in parts.
    top.shows("unseen");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    top.press("q");
    top.ends_and_gives_back();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn failure_of_a_read_is_shown() {
    let mut top = InTerminal::top("failure", &["--manager-url", "https://127.0.0.1:1"]);
    top.shows("the manager does not answer");
    top.press("q");
    top.ends_and_gives_back();
}

#[test]
fn panic_gives_the_terminal_back_before_its_message() {
    let words = ["view_that_panics", "--exact", "--ignored", "--nocapture"];
    let view = InTerminal::start(Command::new(std::env::current_exe().unwrap()).args(words));
    let (status, text) = view.ends_and_gives_back();
    assert!(!status.success());
    assert_eq!(text.matches(GIVE_BACK).count(), 1, "{text:?}");
    let message = text.find("the view has failed").unwrap_or_else(|| panic!("{text:?}"));
    assert!(text.find(GIVE_BACK).unwrap() < message, "the message is on the user's screen: {text:?}");
    assert!(!text[message..].contains("half a screen"), "and nothing is drawn over it: {text:?}");
}

/// Is started by the test before.
#[test]
#[ignore = "another test starts it in a terminal"]
fn view_that_panics() {
    let mut session = kubectl_compute::top::terminal::Session::start().unwrap();
    session.draw(|frame| frame.render_widget("a screen", frame.area())).unwrap();
    let _ = session.draw(|frame| {
        frame.render_widget("half a screen", frame.area());
        panic!("the view has failed");
    });
}
