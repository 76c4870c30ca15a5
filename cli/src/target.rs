//! The object that a command is about, as kubectl names it.

use compute_operator::api::referenced::DataRef;

use crate::exit::Exit;

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Workload.
    Workload(String),
    /// A WorkloadDeployment.
    Deployment(String),
    /// An Instance.
    Instance(String),
    /// A ConfigMap or Secret.
    Data(DataRef),
    /// A Cluster of the hub.
    Cluster(String),
}

impl Target {
    /// Reads `KIND/NAME`, or the kind and the name as two words.
    ///
    /// # Errors
    /// One line for the user, with the exit code.
    pub fn of(words: &[String]) -> Result<Self, (Exit, String)> {
        Self::parse(words).map_err(|error| (Exit::Usage, error))
    }

    fn parse(words: &[String]) -> Result<Self, String> {
        let (kind, name) = match words {
            [both] => {
                both.split_once('/').ok_or_else(|| format!("{both:?} must be KIND/NAME, such as workload/hello"))?
            }
            [kind, name] => (&**kind, &**name),
            _ => return Err("one object must be named, such as workload/hello".to_owned()),
        };
        let kind = kind.split('.').next().unwrap_or_default().to_ascii_lowercase();
        if name.is_empty() || name.contains('/') {
            return Err(format!("{name:?} is no name of an object"));
        }
        match &*kind {
            "workload" | "workloads" | "cwl" | "computeworkloads" => Ok(Self::Workload(name.to_owned())),
            "workloaddeployment" | "workloaddeployments" | "wd" => Ok(Self::Deployment(name.to_owned())),
            "instance" | "instances" => Ok(Self::Instance(name.to_owned())),
            "secret" | "secrets" => Ok(Self::Data(DataRef::secret(name))),
            "configmap" | "configmaps" | "cm" => Ok(Self::Data(DataRef::config_map(name))),
            "cluster" | "clusters" => Ok(Self::Cluster(name.to_owned())),
            _ => Err(format!(
                "{kind:?} is none of workload, workloaddeployment (wd), instance, secret, configmap and cluster"
            )),
        }
    }

    /// Reads the object, which must be a Workload.
    ///
    /// # Errors
    /// One line for the user, with the exit code.
    pub fn workload(words: &[String]) -> Result<String, (Exit, String)> {
        match Self::of(words)? {
            Self::Workload(name) => Ok(name),
            _ => Err((Exit::Usage, "only a workload can be named here".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        let of = |words: &[&str]| Target::of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let workload = Ok(Target::Workload("hello".to_owned()));
        for words in [&["workload/hello"][..], &["cwl", "hello"], &["workloads.compute.datumapis.com/hello"]] {
            assert_eq!(of(words), workload, "{words:?}");
        }
        assert_eq!(of(&["wd/hello-edge-dfw"]), Ok(Target::Deployment("hello-edge-dfw".to_owned())));
        assert_eq!(of(&["instance", "a-0"]), Ok(Target::Instance("a-0".to_owned())));
        assert_eq!(of(&["Secret/db"]), Ok(Target::Data(DataRef::secret("db"))));
        assert_eq!(of(&["cm/db"]), Ok(Target::Data(DataRef::config_map("db"))));
        assert_eq!(of(&["cluster/cell-dfw"]), Ok(Target::Cluster("cell-dfw".to_owned())));
        for words in [&["hello"][..], &["pod/x"], &["workload/"], &["workload", "a/b"]] {
            assert!(of(words).is_err(), "{words:?}");
        }
        assert!(Target::workload(&["wd/x".to_owned()]).is_err());
    }
}
