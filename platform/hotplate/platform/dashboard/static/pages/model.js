// Where a model's bytes are: its files, and what each node has of them in memory and on disk.
import { to, toDeployment } from "hotplate/address";
import { page, ROOT } from "hotplate/api";
import { Figure } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { Empty, Waiting } from "hotplate/shell";
import { html } from "hotplate/view";

const [NAME, VERSION] = [page.ofName, page.ofVersion];
const SOURCE = `${ROOT}/models/${encodeURIComponent(NAME)}/${encodeURIComponent(VERSION)}`;

function Place({ node, size, field, text }) {
  const share = size ? node[field] / size : 0;
  return html`<td class="num" data-head=${text}>
    <${Figure} source=${SOURCE} field=${`nodes.${field}`} value=${node[field]} as="bytes" />
    <span class="meter" role="img" aria-label=${`${Math.round(share * 100)} % of it`}><i style=${{ flexGrow: share, background: "var(--calm)" }} />
      <i style=${{ flexGrow: Math.max(0, 1 - share) }} /></span></td>`;
}

export default function Model() {
  const { data, error } = useResource(SOURCE, { every: 2 });
  const found = data.value;
  const head = html`<p class="soft crumbs"><a href=${to("/models")}>Models</a></p><h1><bdi>${NAME}:${VERSION}</bdi>
    </h1>`;
  if (!found) return html`${head}<${Waiting} error=${error.value} />`;
  return html`${head}
    <dl class="numbers" data-model=${found.tag}><div><dt>Size</dt><dd>
      <${Figure} source=${SOURCE} field="size_bytes" value=${found.size_bytes} as="bytes" /></dd></div></dl>
    <p>Used by ${
      found.used_by.length
        ? found.used_by.map(
            (name) => html`<a href=${toDeployment(name)}>
      <bdi>${name}</bdi></a> `,
          )
        : html`<span class="soft">nobody</span>`
    }</p>
    <h2>Where it is</h2>${
      found.nodes.length
        ? html`<table class="list" aria-label="Nodes"><thead><tr><th scope="col">Node</th>
          <th scope="col" class="num">In memory</th><th scope="col" class="num">On disk</th></tr></thead>
      <tbody>${found.nodes.map(
        (node) => html`<tr key=${node.name} data-node=${node.name}><td class="name"><b>
        <bdi>${node.name}</bdi></b></td>
        <${Place} node=${node} size=${found.size_bytes} field="memory_bytes" text="In memory" />
        <${Place} node=${node} size=${found.size_bytes} field="disk_bytes" text="On disk" /></tr>`,
      )}</tbody></table>`
        : html`<${Empty}>No node has any of it; it is at its origin.</${Empty}>`
    }
    <h2>Files</h2><table class="list" aria-label="Files"><thead><tr><th scope="col">File</th>
      <th scope="col" class="num">Size</th></tr></thead>
      <tbody>${found.files.map(
        (file) => html`<tr key=${file.path} data-path=${file.path}><td class="name">
      <bdi class="mono">${file.path}</bdi></td><td class="num" data-head="Size">
      <${Figure} source=${SOURCE} field="files.size_bytes" value=${file.size_bytes} as="bytes" /></td>
      </tr>`,
      )}</tbody></table>`;
}
