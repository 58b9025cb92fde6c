#!/bin/sh
# Build the site from build/site-source, and commit it to the branch gh-pages as one version.
# Usage: scripts/publish_site.sh VERSION [ALIAS]. If VERSION is the newest of all published
# releases, ALIAS becomes another name of it, and the version that readers get by default.
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
# Print the newest release. A version with more than numbers and dots, such as 2.0.0rc1, is no
# release.
newest() {
    { git ls-tree --full-tree --name-only gh-pages 2>/dev/null || true; echo "$version"; } |
        grep -Ex '[0-9]+(\.[0-9]+)*' | sort -V | tail -n 1
}
# A correction of an older release, such as 1.0.1 after 2.0.0, is published without the alias.
if [ "$(newest)" != "$version" ]; then
    alias=
fi
mike deploy --config-file "$source" --branch gh-pages --update-aliases "$version" ${alias:+"$alias"}
# Until there is a release, the first published version, of the main branch, is the default.
if [ -n "$alias" ] || ! git cat-file -e gh-pages:index.html 2>/dev/null; then
    mike set-default --config-file "$source" --branch gh-pages "${alias:-$version}"
fi
