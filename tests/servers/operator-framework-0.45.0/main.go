// Command operator-framework checks a bundle or a catalog for the Operator Lifecycle Manager with the libraries that
// `operator-sdk bundle validate`, `opm alpha bundle validate` and `opm validate` stand on:
//
//	operator-framework bundle FOLDER    with manifests/ and metadata/
//	operator-framework catalog FOLDER   a file-based catalog
//
// It prints one finding a line, `error: …` or `warning: …`, and fails if one of them is an error.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	registry "github.com/operator-framework/operator-registry/pkg/lib/bundle"
	"github.com/sirupsen/logrus"
)

// validators are all that need no registry: the one for several architectures pulls the images.
var validators = interfaces.Validators{
	validation.ClusterServiceVersionValidator,
	validation.CustomResourceDefinitionValidator,
	validation.BundleValidator,
	validation.ObjectValidator,
	validation.OperatorHubV2Validator,
	validation.StandardCapabilitiesValidator,
	validation.StandardCategoriesValidator,
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
}

// findings are what the libraries have against a folder.
type findings struct {
	errors, warnings []error
}

func (f *findings) refuse(err error) {
	if several, ok := err.(registry.ValidationError); ok {
		f.errors = append(f.errors, several.Errors...)
	} else if err != nil {
		f.errors = append(f.errors, err)
	}
}

// ofBundle: whether the manager can install it, and what the validators say.
func ofBundle(folder string) (found findings) {
	images := registry.NewImageValidator(nil, logrus.NewEntry(logrus.StandardLogger()))
	found.refuse(images.ValidateBundleFormat(folder))
	found.refuse(images.ValidateBundleContent(filepath.Join(folder, registry.ManifestsDir)))
	bundle, err := manifests.GetBundleFromDir(folder)
	found.refuse(err)
	if err != nil {
		return found
	}
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, one := range result.Errors {
			found.refuse(one)
		}
		for _, one := range result.Warnings {
			found.warnings = append(found.warnings, one)
		}
	}
	return found
}

func ofCatalog(folder string) (found findings) {
	config, err := declcfg.LoadFS(context.Background(), os.DirFS(folder))
	if err == nil {
		_, err = declcfg.ConvertToModel(*config)
	}
	found.refuse(err)
	return found
}

func main() {
	checks := map[string]func(string) findings{"bundle": ofBundle, "catalog": ofCatalog}
	if len(os.Args) != 3 || checks[os.Args[1]] == nil {
		log.Fatal("usage: operator-framework bundle|catalog FOLDER")
	}
	found := checks[os.Args[1]](os.Args[2])
	for _, one := range found.errors {
		fmt.Println("error:", one)
	}
	for _, one := range found.warnings {
		fmt.Println("warning:", one)
	}
	if len(found.errors) > 0 {
		os.Exit(1)
	}
}
