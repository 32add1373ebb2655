// A dev deployment of `bentoml code`: its files, and what it prints.
import { toDeployment } from "hotplate/address";
import { bytes, Figure, Status } from "hotplate/figures";
import { NAME, SOURCE, useDeployment } from "hotplate/deployment";
import { useLines } from "hotplate/loglines";
import { useResource } from "hotplate/resources";
import { Empty, Waiting } from "hotplate/shell";
import { Line } from "hotplate/terminal";
import { html } from "hotplate/view";

const FILES = `/api/v2/deployments/${encodeURIComponent(NAME)}/files`;

export default function CodeSpace() {
  const { data, error } = useDeployment();
  const files = useResource(FILES, { every: 3 });
  const { lines } = useLines(SOURCE, NAME, "");
  const found = data.value;
  const listed = files.data.value?.files;
  if (!found) return html`<h1><bdi>${NAME}</bdi></h1><${Waiting} error=${error.value} />`;
  return html`<header data-deployment=${NAME}><p class="soft crumbs">Code space</p><h1>
    <bdi>${NAME}</bdi> <${Status} source=${SOURCE} value=${found.status} /></h1>
      <p class="sentence"><${Figure} source=${SOURCE} field="reason" value=${found.reason || null} as="text" /></p>
        <p class="facts">
        <a href=${toDeployment(NAME)}>All about this deployment</a> <code>bentoml code --attach ${NAME}</code></p>
        </header>
    <h2>What it prints</h2>${
      lines.length
        ? html`<div class="log" tabindex="0" role="log" aria-live="off" aria-label="Log">${lines.slice(-400).map(
            (line) => html`<div key=${line.id}>
      <bdi><${Line} text=${line.text} /></bdi></div>`,
          )}</div>`
        : html`<${Empty}>Nothing is printed yet.</${Empty}>`
    }
    <h2>Files</h2>${
      !listed
        ? html`<${Waiting} error=${files.error.value} />`
        : !listed.length
          ? html`<${Empty}>No file was sent yet.</${Empty}>`
          : html`<p class="soft">${listed.length} ${listed.length === 1 ? "file" : "files"}, ${bytes(listed.reduce((sum, { size }) => sum + size, 0))}</p>
      <table class="list" aria-label="Files"><thead><tr><th scope="col">File</th>
      <th scope="col" class="num">Size</th></tr></thead>
      <tbody>${listed.map(
        (file) => html`<tr key=${file.path} data-path=${file.path}><td class="name">
      <bdi class="mono">${file.path}</bdi></td><td class="num" data-head="Size">
      <${Figure} source=${FILES} field="files.size" value=${file.size} as="bytes" /></td></tr>`,
      )}</tbody></table>`
    }`;
}
