// Command manager writes a federation as the Go operator leaves it, on the control planes of a project, a hub and its
// cells. Each object is written by the same plain writes as those of its controller. The name of the command matters: API
// servers use it as the field manager of every write that does not set one.
//
// It writes the final state of the controllers, in the same order as they do. It does not reconcile.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	. "compute-operator.local/go-era/v1alpha"
)

// several is a flag that may be given more than once.
type several []string

func (s *several) String() string { return strings.Join(*s, ",") }

func (s *several) Set(value string) error {
	*s = append(*s, value)
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var cells, namespaces several
	project := flag.String("project", "", "kubeconfig of the project")
	hub := flag.String("hub", "", "kubeconfig of the hub")
	patience := flag.Duration("patience", 3*time.Minute, "how long everything together may take")
	flag.Var(&cells, "cell", "a city and the kubeconfig of its cell, as dfw=FILE")
	flag.Var(&namespaces, "namespace", "a namespace of the project")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()

	var all tenancy
	var failed [3]error
	all.project, failed[0] = connect("project", *project, "")
	all.tenant, failed[1] = connect("project", *project, "kubectl/v1.36.3")
	all.hub, failed[2] = connect("hub", *hub, "")
	if err := errors.Join(failed[:]...); err != nil {
		return err
	}
	all.cells = map[string]cell{}
	for _, each := range cells {
		code, file, _ := strings.Cut(each, "=")
		here, err := connect("cell "+code, file, "")
		scaler, other := connect("cell "+code, file, "kube-controller-manager/v1.36.3")
		if err = errors.Join(err, other); err != nil {
			return err
		}
		all.cells[code] = cell{here, scaler}
	}
	var wait sync.WaitGroup
	errs := make([]error, len(namespaces))
	for at, name := range namespaces {
		one := all
		one.namespace = name
		wait.Go(func() { errs[at] = one.write(ctx) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// write creates all objects of one namespace.
func (t tenancy) write(ctx context.Context) error {
	live, err := t.project.get(ctx, "Namespace", "", t.namespace)
	if err != nil {
		return err
	}
	t.onHub = "ns-" + string(live.GetUID())
	all := workloads()
	if err := asked(ctx, t.tenant, t.namespace, all); err != nil {
		return err
	}
	labels := map[string]string{upstreamCluster: "cluster-single", upstreamNamespace: t.namespace}
	if _, err := t.hub.ensure(ctx, "Namespace", "", t.onHub, labels, nil, nil); err != nil {
		return err
	}
	for _, each := range all {
		deployments, err := t.fanOut(ctx, each)
		if err != nil {
			return err
		}
		var said []WorkloadDeploymentStatus
		for _, d := range deployments {
			instances, err := t.deploy(ctx, d)
			if err != nil {
				return err
			}
			status, err := t.mirror(ctx, d)
			if err == nil {
				err = t.show(ctx, d, instances)
			}
			if err != nil {
				return err
			}
			said = append(said, status)
		}
		if err := t.sum(ctx, each, said); err != nil {
			return err
		}
	}
	return nil
}

func (t tenancy) deploy(ctx context.Context, d deployment) ([]string, error) {
	if err := t.resolve(ctx, d); err != nil {
		return nil, err
	}
	if err := t.federate(ctx, d); err != nil {
		return nil, err
	}
	return t.run(ctx, d)
}
