// Renders a Helm chart as `helm template` does: text/template of Go with the functions of sprig and those of Helm's own that
// are about text. Reads the values that differ from values.yaml from standard input, as JSON.
//
//	apt-get install golang-go golang-github-masterminds-sprig-dev golang-k8s-sigs-yaml-dev
//	GO111MODULE=off GOPATH=/usr/share/gocode go run scripts/render-chart.go deploy/helm/trestle < values.json
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type values = map[string]interface{}

func main() {
	if err := render(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(chart string) error {
	given, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	all, changes, about := values{}, values{}, values{}
	if err := readYaml(filepath.Join(chart, "values.yaml"), &all); err != nil {
		return err
	}
	if err := readYaml(filepath.Join(chart, "Chart.yaml"), &about); err != nil {
		return err
	}
	if err := yaml.Unmarshal(given, &changes); err != nil {
		return err
	}
	merge(all, changes)
	context := values{
		"Values":  all,
		"Chart":   values{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
		"Release": values{"Name": "trestle", "Namespace": "default", "Service": "Helm", "IsInstall": true, "Revision": 1},
	}
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		return err
	}
	root := template.New("chart").Option("missingkey=zero")
	root.Funcs(functions(root))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := root.New(filepath.Base(file)).Parse(string(text)); err != nil {
			return err
		}
	}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var text strings.Builder
		if err := root.ExecuteTemplate(&text, name, context); err != nil {
			return err
		}
		// Helm prints the notes apart; what a missing key leaves is empty there.
		rendered := strings.TrimSpace(strings.ReplaceAll(text.String(), "<no value>", ""))
		if name == "NOTES.txt" {
			rendered = "# " + strings.ReplaceAll(rendered, "\n", "\n# ")
		}
		fmt.Printf("---\n# Source: %s\n%s\n", name, strings.TrimPrefix(rendered, "---\n"))
	}
	return nil
}

func functions(root *template.Template) template.FuncMap {
	all := sprig.TxtFuncMap()
	// Helm has neither: a chart must not read the machine that it is rendered on.
	delete(all, "env")
	delete(all, "expandenv")
	all["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(string(text), "\n")
	}
	all["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := root.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	all["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return value, fmt.Errorf("%s", message)
		}
		return value, nil
	}
	return all
}

// As Helm does: maps are merged, everything else is replaced, null removes.
func merge(into values, changes values) {
	for key, change := range changes {
		inner, isMap := change.(values)
		present, wasMap := into[key].(values)
		switch {
		case change == nil:
			delete(into, key)
		case isMap && wasMap:
			merge(present, inner)
		default:
			into[key] = change
		}
	}
}

func readYaml(file string, into *values) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}
