#!/bin/sh
# Builds the site from build/site-source and commits it to the branch gh-pages as one version.
# Usage: scripts/publish_site.sh VERSION [ALIAS]: an alias is moved there, and is what readers get.
set -eu
version=$1
alias=${2:-}
root=$(cd "$(dirname "$0")/.." && pwd)
PATH=$root/.venv/bin:$PATH  # mike starts mkdocs
export PATH
source=$root/build/site-source/mkdocs.yml
if git ls-remote --exit-code origin gh-pages >/dev/null 2>&1; then
    git fetch origin gh-pages:gh-pages
fi
mike deploy --config-file "$source" --branch gh-pages --update-aliases "$version" ${alias:+"$alias"}
# Until there is a release, the main branch is what readers get.
if [ -n "$alias" ] || ! git cat-file -e gh-pages:index.html 2>/dev/null; then
    mike set-default --config-file "$source" --branch gh-pages "${alias:-$version}"
fi
