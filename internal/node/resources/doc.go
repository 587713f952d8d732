// Package resources keeps the pods of a node within what the node has, for `fairlead
// node` and `fairlead up` alike. It joins the packages that know one part each
// (capacity, cgroups, eviction, oom, shutdown) and gives an agent what it asks of
// them. It decides nothing that they do not decide.
package resources
