// Package stub serves stub services: real HTTP servers that answer as *.stub.yaml files say.
package stub
