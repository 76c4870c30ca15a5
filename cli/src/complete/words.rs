//! The words of a command line that is not complete yet.

use std::{ffi::OsString, path::PathBuf};

use clap::{ArgMatches, Command, CommandFactory};

use super::NAME;
use crate::flags::Flags;

/// What the words before the cursor say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Kubeconfig file.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the project.
    pub context: Option<String>,
    /// Namespace in the project.
    pub namespace: Option<String>,
    /// Context of the hub.
    pub hub_context: Option<String>,
    /// Context of the manager's cluster.
    pub manager_context: Option<String>,
    /// Words of the object.
    pub object: Vec<String>,
}

impl Line {
    /// Reads the words before the one at the cursor.
    pub fn of(words: &[OsString], index: usize) -> Self {
        let before = &words[..index.min(words.len())];
        let parsed = command().ignore_errors(true).try_get_matches_from(before);
        let mut line = Self::default();
        let mut next = parsed.as_ref().ok();
        while let Some(matches) = next {
            line.take(matches);
            next = matches.subcommand().map(|(_, matches)| matches);
        }
        line
    }

    fn take(&mut self, matches: &ArgMatches) {
        let one = |id: &str| matches.try_get_one::<String>(id).ok().flatten().cloned();
        let file = matches.try_get_one::<PathBuf>("kubeconfig").ok().flatten().cloned();
        self.kubeconfig = file.or_else(|| self.kubeconfig.take());
        self.context = one("context").or_else(|| self.context.take());
        self.namespace = one("namespace").or_else(|| self.namespace.take());
        self.hub_context = one("hub_context").or_else(|| self.hub_context.take());
        self.manager_context = one("manager_context").or_else(|| self.manager_context.take());
        let object = matches.try_get_many::<String>("object").ok().flatten();
        self.object.extend(object.into_iter().flatten().cloned());
    }
}

/// Returns the command under the name of its binary.
pub fn command() -> Command {
    Flags::command().name(NAME).bin_name(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Line {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        Line::of(&words, words.len() - 1)
    }

    #[test]
    fn words_before_the_cursor_are_read_although_the_line_is_not_complete() {
        let some = |text: &str| Some(text.to_owned());
        for line in [
            "kubectl-compute --context shop trace wd -n demo ",
            "kubectl-compute trace --context=shop wd -ndemo x",
            "kubectl-compute trace wd --context shop --namespace demo --watch ",
        ] {
            let read = of(line);
            assert_eq!((read.context, read.namespace), (some("shop"), some("demo")), "{line}");
            assert_eq!(read.object, ["wd"], "{line}");
        }
        assert_eq!(of("kubectl-compute cell drain --hub-context hub ").hub_context, some("hub"));
        assert_eq!(of("kubectl-compute --kubeconfig /a/b --context ").kubeconfig, Some("/a/b".into()));
        assert_eq!(of("kubectl-compute waiting --manager-context m --city ").manager_context, some("m"));
        let wrong = of("kubectl-compute -n demo --dance trace wd ");
        assert_eq!(wrong.object, Vec::<String>::new(), "behind a mistake, nothing is known");
        assert_eq!(Line::of(&[], 3).object, Vec::<String>::new());
    }
}
