//! The terminal: it is taken for the view, and given back whatever happens.

use std::{
    io::{self, Stdout, Write},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::ThreadId,
};

use crossterm::{
    cursor::Show,
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{Frame, Terminal, backend::CrosstermBackend};

/// True while the terminal is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The thread that draws.
static DRAWS: Mutex<Option<ThreadId>> = Mutex::new(None);

/// The terminal while the view has it.
pub struct Session {
    terminal: Terminal<CrosstermBackend<Whole>>,
    /// Gives the terminal back. It is dropped last.
    _guard: Guard,
}

impl Session {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal does not allow it.
    pub fn start() -> io::Result<Self> {
        let guard = Guard::take()?;
        let terminal = Terminal::new(CrosstermBackend::new(Whole::default()))?;
        Ok(Self { terminal, _guard: guard })
    }

    /// Draws one screen.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(render).map(|_| ())
    }
}

struct Guard;

impl Guard {
    fn take() -> io::Result<Self> {
        restore_on_panic();
        *DRAWS.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current().id());
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        let guard = Self;
        execute!(io::stdout(), EnterAlternateScreen)?;
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back, once.
fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Each is tried, although one of them fails: nothing else can be done.
        let _ = disable_raw_mode();
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    }
}

/// Gives the terminal back before the message of a panic is printed. A reader that panics leaves it to the view to say so.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let draws = *DRAWS.lock().unwrap_or_else(PoisonError::into_inner);
            let is_taken = TAKEN.load(Ordering::SeqCst);
            if is_taken && draws != Some(std::thread::current().id()) {
                return;
            }
            restore();
            print(info);
        }));
    });
}

/// Standard output that gets a screen as a whole. A part of one is never written after the terminal was given back.
struct Whole {
    out: Stdout,
    screen: Vec<u8>,
}

impl Default for Whole {
    fn default() -> Self {
        Self { out: io::stdout(), screen: Vec::new() }
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.screen.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.screen);
        self.screen.clear();
        written.and_then(|()| self.out.flush())
    }
}
