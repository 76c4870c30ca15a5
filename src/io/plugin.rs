//! Credential plugins (`exec` in a kubeconfig), as far as their errors go.

use std::{error::Error as StdError, io};

use kube::client::AuthError;
use tokio_rustls::rustls;

/// Returns an error and its causes, the outermost first.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (**error).source())
}

/// Returns the words for an error of credentials. `None` for all others. kube's own words have the command of a plugin with its
/// environment, and its output, and may quote a token.
pub(super) fn words(error: &(dyn StdError + 'static)) -> Option<String> {
    let error = causes(error).find_map(|cause| cause.downcast_ref::<AuthError>())?;
    Some(match error {
        AuthError::AuthExecRun { out, .. } => format!("the credential plugin failed: {}", out.status),
        AuthError::AuthExecStart(why) => format!("the credential plugin cannot be started: {why}"),
        AuthError::ReadTokenFile(why, path) => format!("token file {}: {why}", path.display()),
        AuthError::UnrefreshableTokenResponse | AuthError::ExecPluginFailed => {
            "the credential plugin gave no token".to_owned()
        }
        AuthError::AuthExecParse(_) | AuthError::MalformedTokenExpirationDate(_) => {
            "the answer of the credential plugin cannot be read".to_owned()
        }
        AuthError::InvalidBasicAuth(_) | AuthError::InvalidBearerToken(_) => {
            "the password or token cannot be part of a header".to_owned()
        }
        _ => "the credentials of the kubeconfig cannot be used".to_owned(),
    })
}

/// True if this can be the error of a request with a credential that has ended. A server that takes anonymous requests answers them
/// as forbidden. One that asks for a certificate of the client ends the connection.
pub(super) fn may_have_ended(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        return status.code == 401 || status.message.contains("system:anonymous");
    }
    causes(error).any(|cause| cause.is::<AuthError>() || is_alert(cause))
}

/// True if the server ended a TLS connection with this.
fn is_alert(cause: &(dyn StdError + 'static)) -> bool {
    // rustls passes its errors on inside those of IO, which are not among the causes. Of these, h2 keeps only the text.
    let Some(inner) = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) else { return false };
    match inner.downcast_ref::<rustls::Error>() {
        Some(error) => matches!(error, rustls::Error::AlertReceived(_)),
        None => inner.to_string().starts_with("received fatal alert"),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process};

    use super::*;

    /// kubelogin has a client secret in its environment. It stood in the log, and in `/readyz`.
    #[test]
    fn words_of_a_failed_plugin_have_nothing_of_its_command_and_output() {
        let out = process::Output {
            status: process::ExitStatus::from_raw(256),
            stdout: b"token: hidden".to_vec(),
            stderr: b"hidden".to_vec(),
        };
        let failed = || AuthError::AuthExecRun { cmd: "SECRET=hidden kubelogin".into(), out: Box::new(out.clone()) };
        let asked: [kube::Error; 2] = [kube::Error::Auth(failed()), kube::Error::Service(failed().into())];
        for error in asked {
            let expected = "the credential plugin failed: exit status: 1";
            assert_eq!((words(&error).as_deref(), may_have_ended(&error)), (Some(expected), true));
            assert!(error.to_string().contains("hidden"), "so kube's own words must not be used");
        }
    }

    #[test]
    fn credential_that_may_have_ended() {
        let api = |code, words: &str| kube::Error::Api(kube::core::Status::failure(words, "").with_code(code).boxed());
        let io = |inner: rustls::Error| kube::Error::Service(io::Error::new(io::ErrorKind::InvalidData, inner).into());
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired);
        for (error, expected) in [
            (api(401, "Unauthorized"), true),
            (api(403, r#"pods is forbidden: User "system:anonymous" cannot list resource"#), true),
            (api(403, r#"pods is forbidden: User "manager" cannot list resource"#), false),
            (kube::Error::Service(io::Error::other(alert.to_string()).into()), true),
            (io(alert), true),
            (io(rustls::Error::DecryptError), false),
            (kube::Error::Service(io::Error::from(io::ErrorKind::ConnectionRefused).into()), false),
        ] {
            assert_eq!(may_have_ended(&error), expected, "{error}");
            assert_eq!(words(&error), None);
        }
    }
}
