// Prints what kstatus says about each Kubernetes object on stdin: its status, a tab and its message, one line for each.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	if err := judge(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func judge(from io.Reader, to io.Writer) error {
	objects := json.NewDecoder(from)
	for {
		var text json.RawMessage
		if err := objects.Decode(&text); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		// UnmarshalJSON makes whole numbers int64, as clients of an API server do. kstatus ignores a generation that is a float.
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			return err
		}
		result, err := status.Compute(object)
		if err != nil {
			return err
		}
		message := strings.ReplaceAll(result.Message, "\n", " ")
		if _, err := fmt.Fprintf(to, "%s\t%s\n", result.Status, message); err != nil {
			return err
		}
	}
}
